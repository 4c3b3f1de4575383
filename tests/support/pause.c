// Preloaded into kgen (LD_PRELOAD): pauses it after it has opened a file for reading whose path ends in $PAUSE_AT.
// Creates the file $PAUSE_IN/paused, then waits until $PAUSE_IN/go exists.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int Open(const char*, int, ...);

static int ends_with(const char* path, const char* end) {
    size_t length = strlen(path), wanted = strlen(end);
    return length >= wanted && strcmp(path + length - wanted, end) == 0;
}

static int opened(const char* name, const char* path, int flags, mode_t mode) {
    Open* real = (Open*)dlsym(RTLD_NEXT, name);
    int file = real(path, flags, mode);
    const char *at = getenv("PAUSE_AT"), *in = getenv("PAUSE_IN");
    if (file < 0 || (flags & O_ACCMODE) != O_RDONLY || at == NULL || in == NULL || !ends_with(path, at)) return file;
    char place[4096];
    snprintf(place, sizeof place, "%s/paused", in);
    close(real(place, O_CREAT | O_WRONLY, 0644));
    snprintf(place, sizeof place, "%s/go", in);
    while (access(place, F_OK) != 0) usleep(5000);
    // Reopen, so that kgen reads the file's current contents.
    close(file);
    return real(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    return opened("open64", path, flags, mode);
}
