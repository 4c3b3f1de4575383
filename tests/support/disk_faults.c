/* Runs a program and injects a fault at its N-th system call that modifies something below a folder.
 *
 *     disk_faults FOLDER REPORT N FAULT program argument...
 *
 * FAULT is `kill`: all threads are killed before call N; `EACCES`: call N and all later calls that need a permission
 * fail; `ENOSPC`: call N and all later calls that need disk space fail. With N = 0 no fault is injected. The calls are
 * written to the file REPORT, one per line. The exit status is the program's, or 137 if it was killed.
 *
 * A seccomp filter traps the calls, so they are caught whichever library makes them. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    NEEDS_ROOM = 1,  /* can fail with ENOSPC */
    BY_NAME = 2,     /* can fail with EACCES */
    OPENS = 4,       /* counts only if it creates or truncates a file */
};

/* Kind of a call, and the indices of its arguments. */
struct call {
    long number;
    const char *name;
    int path, folder, file; /* -1: none */
    int flags;              /* of open, -1: none */
    unsigned what;
};

static const struct call CALLS[] = {
#ifdef SYS_open
    {SYS_open, "open", 0, -1, -1, 1, OPENS | NEEDS_ROOM | BY_NAME},
    {SYS_creat, "creat", 0, -1, -1, -1, NEEDS_ROOM | BY_NAME},
    {SYS_mkdir, "mkdir", 0, -1, -1, -1, NEEDS_ROOM | BY_NAME},
    {SYS_rmdir, "rmdir", 0, -1, -1, -1, BY_NAME},
    {SYS_unlink, "unlink", 0, -1, -1, -1, BY_NAME},
    {SYS_rename, "rename", 1, -1, -1, -1, BY_NAME},
    {SYS_link, "link", 1, -1, -1, -1, NEEDS_ROOM | BY_NAME},
    {SYS_symlink, "symlink", 1, -1, -1, -1, NEEDS_ROOM | BY_NAME},
    {SYS_chmod, "chmod", 0, -1, -1, -1, BY_NAME},
    {SYS_mknod, "mknod", 0, -1, -1, -1, NEEDS_ROOM | BY_NAME},
#endif
#ifdef SYS_renameat
    {SYS_renameat, "rename", 3, 2, -1, -1, BY_NAME},
#endif
    {SYS_openat, "open", 1, 0, -1, 2, OPENS | NEEDS_ROOM | BY_NAME},
    {SYS_mkdirat, "mkdir", 1, 0, -1, -1, NEEDS_ROOM | BY_NAME},
    {SYS_unlinkat, "unlink", 1, 0, -1, -1, BY_NAME},
    {SYS_renameat2, "rename", 3, 2, -1, -1, BY_NAME},
    {SYS_linkat, "link", 3, 2, -1, -1, NEEDS_ROOM | BY_NAME},
    {SYS_symlinkat, "symlink", 2, 1, -1, -1, NEEDS_ROOM | BY_NAME},
    {SYS_fchmodat, "chmod", 1, 0, -1, -1, BY_NAME},
    {SYS_mknodat, "mknod", 1, 0, -1, -1, NEEDS_ROOM | BY_NAME},
    {SYS_truncate, "truncate", 0, -1, -1, -1, NEEDS_ROOM | BY_NAME},
    {SYS_fchmod, "chmod", -1, -1, 0, -1, 0},
    {SYS_ftruncate, "truncate", -1, -1, 0, -1, NEEDS_ROOM},
    {SYS_fallocate, "fallocate", -1, -1, 0, -1, NEEDS_ROOM},
    {SYS_write, "write", -1, -1, 0, -1, NEEDS_ROOM},
    {SYS_writev, "write", -1, -1, 0, -1, NEEDS_ROOM},
    {SYS_pwrite64, "write", -1, -1, 0, -1, NEEDS_ROOM},
    {SYS_pwritev, "write", -1, -1, 0, -1, NEEDS_ROOM},
    {SYS_pwritev2, "write", -1, -1, 0, -1, NEEDS_ROOM},
    {SYS_sendfile, "write", -1, -1, 0, -1, NEEDS_ROOM},
    {SYS_copy_file_range, "write", -1, -1, 2, -1, NEEDS_ROOM},
    {SYS_splice, "write", -1, -1, 2, -1, NEEDS_ROOM},
};
enum { COUNT = sizeof CALLS / sizeof CALLS[0] };

static void fail(const char *what) {
    fprintf(stderr, "disk_faults: %s: %s\n", what, strerror(errno));
    exit(125);
}

#if defined(__x86_64__)
typedef struct user_regs_struct registers;
static long number_of(const registers *r) { return (long)r->orig_rax; }
static unsigned long argument(const registers *r, int n) {
    const unsigned long all[] = {r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9};
    return all[n];
}
static void refuse(pid_t thread, registers *r, int error) {
    r->orig_rax = (unsigned long)-1;
    r->rax = (unsigned long)-(long)error;
    struct iovec area = {r, sizeof *r};
    if (ptrace(PTRACE_SETREGSET, thread, (void *)NT_PRSTATUS, &area)) fail("set registers");
}
#elif defined(__aarch64__)
typedef struct user_regs_struct registers;
static long number_of(const registers *r) { return (long)r->regs[8]; }
static unsigned long argument(const registers *r, int n) { return r->regs[n]; }
static void refuse(pid_t thread, registers *r, int error) {
    int none = -1;
    struct iovec number = {&none, sizeof none};
    if (ptrace(PTRACE_SETREGSET, thread, (void *)NT_ARM_SYSTEM_CALL, &number)) fail("set the call");
    r->regs[0] = (unsigned long)-(long)error;
    struct iovec area = {r, sizeof *r};
    if (ptrace(PTRACE_SETREGSET, thread, (void *)NT_PRSTATUS, &area)) fail("set registers");
}
#else
#error "registers of this machine"
#endif

/* The NUL-terminated string at an address of the thread. */
static void text_at(pid_t thread, unsigned long address, char *text, size_t size) {
    char file[64];
    snprintf(file, sizeof file, "/proc/%d/mem", (int)thread);
    int memory = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t got = memory < 0 ? -1 : pread(memory, text, size - 1, (off_t)address);
    if (memory >= 0) close(memory);
    text[got < 0 ? 0 : got] = 0;
}

static void link_of(pid_t thread, const char *what, long number, char *text, size_t size) {
    char file[64];
    if (number < 0) snprintf(file, sizeof file, "/proc/%d/%s", (int)thread, what);
    else snprintf(file, sizeof file, "/proc/%d/%s/%ld", (int)thread, what, number);
    ssize_t got = readlink(file, text, size - 1);
    text[got < 0 ? 0 : got] = 0;
}

/* The path that the call modifies. */
static void place_of(pid_t thread, const struct call *call, const registers *r, char *place, size_t size) {
    char path[PATH_MAX], folder[PATH_MAX];
    if (call->path < 0) {
        link_of(thread, "fd", (int)argument(r, call->file), place, size);
        return;
    }
    text_at(thread, argument(r, call->path), path, sizeof path);
    int from = call->folder < 0 ? AT_FDCWD : (int)argument(r, call->folder);
    if (path[0] == '/') folder[0] = 0;
    else if (from == AT_FDCWD) link_of(thread, "cwd", -1, folder, sizeof folder);
    else link_of(thread, "fd", from, folder, sizeof folder);
    snprintf(place, size, "%s%s%s", folder, folder[0] ? "/" : "", path);
}

static void begin(char **arguments) {
    struct sock_filter filter[2 + 2 * COUNT];
    int at = 0;
    filter[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < COUNT; i++) {
        filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)CALLS[i].number, 0, 1);
        filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    }
    filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {(unsigned short)at, filter};
    if (ptrace(PTRACE_TRACEME, 0, 0, 0)) fail("ptrace");
    raise(SIGSTOP);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) fail("no new privileges");
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) fail("seccomp");
    execv(arguments[0], arguments);
    fail(arguments[0]);
}

int main(int count, char **arguments) {
    if (count < 6) return 125;
    const char *below = arguments[1], *fault = arguments[4];
    FILE *report = fopen(arguments[2], "w");
    const long wanted = atol(arguments[3]);
    if (!report) fail(arguments[2]);
    const int error = !strcmp(fault, "EACCES") ? EACCES : !strcmp(fault, "ENOSPC") ? ENOSPC : 0;
    const unsigned hit = error == EACCES ? BY_NAME : NEEDS_ROOM;

    pid_t child = fork();
    if (child < 0) fail("fork");
    if (!child) begin(arguments + 5);
    int status;
    if (waitpid(child, &status, 0) < 0 || !WIFSTOPPED(status)) fail("the program did not start");
    const long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                         PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, child, 0, options)) fail("options");
    ptrace(PTRACE_CONT, child, 0, 0);

    long seen = 0;
    int result = 125;
    for (pid_t thread; (thread = waitpid(-1, &status, __WALL)) > 0;) {
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (thread == child) result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            continue;
        }
        int signal = WSTOPSIG(status);
        const int event = status >> 16;
        if (event == PTRACE_EVENT_SECCOMP) {
            registers r;
            struct iovec area = {&r, sizeof r};
            if (ptrace(PTRACE_GETREGSET, thread, (void *)NT_PRSTATUS, &area)) continue; /* it was just killed */
            const struct call *call = CALLS;
            while (call < CALLS + COUNT && call->number != number_of(&r)) call++;
            char place[2 * PATH_MAX] = "";
            int counts = call < CALLS + COUNT;
            if (counts && call->what & OPENS) counts = (argument(&r, call->flags) & (O_CREAT | O_TRUNC)) != 0;
            if (counts) {
                place_of(thread, call, &r, place, sizeof place);
                counts = !strncmp(place, below, strlen(below));
            }
            if (counts) {
                seen++;
                fprintf(report, "%s %s\n", call->name, place + strlen(below));
                if (wanted && seen >= wanted && !error) kill(child, SIGKILL);
                else if (wanted && seen >= wanted && call->what & hit) refuse(thread, &r, error);
            }
            signal = 0;
        } else if (event || signal == SIGSTOP) {
            signal = 0; /* first stop of a new thread or program */
        }
        ptrace(PTRACE_CONT, thread, 0, signal);
    }
    fclose(report);
    return result;
}
