// Fibers: the saved state of a suspended kernel thread, and its stack. A switch is a dozen instructions and no system
// call; a block of 128 threads makes hundreds of thousands of them.
#pragma once

namespace kgen::emulator {

#ifdef KGEN_EMULATOR_ASSEMBLY

// A suspended fiber is its stack pointer; the registers that the calling convention preserves are on its stack.
struct context {
    void* stack_pointer;
};

// Saves the caller's state in `from` and resumes `to`.
extern "C" __attribute__((visibility("hidden"))) void kgen_emulator_switch(context* from, const context* to);

#if defined(__x86_64__)

// It returns by a jump: every lane of a warp comes from the same place, which the predictor of indirect jumps finds; a
// return, paired with another fiber's call, would always be mispredicted.
asm(R"(
.text
.p2align 4
.hidden kgen_emulator_switch
.globl kgen_emulator_switch
.type kgen_emulator_switch, @function
kgen_emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq (%rsi), %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmp *%rcx
.size kgen_emulator_switch, . - kgen_emulator_switch
)");

// `entry` starts as if called: the stack is 8 bytes off a multiple of 16.
inline void prepare(context& fiber, unsigned char* stack_top, void (*entry)()) {
    auto* words = reinterpret_cast<uint64_t*>(stack_top);
    memset(words - 8, 0, 8 * sizeof *words);
    words[-2] = reinterpret_cast<uint64_t>(entry);
    fiber.stack_pointer = words - 8;
}

#else

asm(R"(
.text
.p2align 4
.hidden kgen_emulator_switch
.globl kgen_emulator_switch
.type kgen_emulator_switch, @function
kgen_emulator_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    ldr x9, [x1]
    mov sp, x9
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size kgen_emulator_switch, . - kgen_emulator_switch
)");

inline void prepare(context& fiber, unsigned char* stack_top, void (*entry)()) {
    auto* words = reinterpret_cast<uint64_t*>(stack_top);
    memset(words - 20, 0, 20 * sizeof *words);
    words[-9] = reinterpret_cast<uint64_t>(entry);  // x30
    fiber.stack_pointer = words - 20;
}

#endif

#else  // any other processor: the C library's contexts, with a system call at every switch

constexpr size_t UCONTEXT_STACK = 48 * 1024;

struct context {
    ucontext_t place;
};

inline void kgen_emulator_switch(context* from, const context* to) { swapcontext(&from->place, &to->place); }

inline void prepare(context& fiber, unsigned char* stack_top, void (*entry)()) {
    getcontext(&fiber.place);
    fiber.place.uc_stack.ss_sp = stack_top - UCONTEXT_STACK;
    fiber.place.uc_stack.ss_size = UCONTEXT_STACK;
    fiber.place.uc_link = nullptr;
    makecontext(&fiber.place, entry, 0);
}

#endif

// The stacks of a block's threads, reused across blocks and launches. Below each is a guard page: a thread that needs
// more than 64 KB dies of a signal there instead of corrupting its neighbour.
class stack_pool {
  public:
    // Allocates `count` stacks; false when out of memory.
    bool reserve(uint32_t count) {
        if (count <= count_) return true;
        if (memory_ != nullptr) munmap(memory_, count_ * stride_);
        count_ = 0;
        const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        stride_ = (STACK_BYTES + page - 1) / page * page + page;
        void* memory = mmap(nullptr, count * stride_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memory_ = memory == MAP_FAILED ? nullptr : static_cast<unsigned char*>(memory);
        if (memory_ == nullptr) return false;
        for (uint32_t i = 0; i < count; ++i) mprotect(memory_ + i * stride_, page, PROT_NONE);
        count_ = count;
        return true;
    }

    // The start of stack `index` (it grows downwards). Staggered, so that the same variable of the 32 lanes of a warp
    // does not map to the same line of the processor's cache.
    unsigned char* top(uint32_t index) const { return memory_ + (index + 1) * stride_ - index % 32 * STAGGER_BYTES; }

  private:
    static constexpr size_t STACK_BYTES = 128 * 1024;
    static constexpr size_t STAGGER_BYTES = 1088;
    unsigned char* memory_ = nullptr;
    uint32_t count_ = 0;
    size_t stride_ = 0;
};

}  // namespace kgen::emulator
