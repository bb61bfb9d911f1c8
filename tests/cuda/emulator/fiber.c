/* The switch is a few instructions on x86-64 and swapcontext elsewhere. The sanitizers are told. */
#include "tests/cuda/emulator/fiber.h"

#include <stdlib.h>
#include <ucontext.h>

#include "tests/cuda/emulator/internal.h"

#if defined(__SANITIZE_ADDRESS__)
void __sanitizer_start_switch_fiber(void **fake, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *fake, const void **bottom, size_t *size);
#define STACK ((size_t)256 << 10)
#else
#define __sanitizer_start_switch_fiber(fake, bottom, size)                                         \
    ((void)(fake), (void)(bottom), (void)(size))
#define __sanitizer_finish_switch_fiber(fake, bottom, size)                                        \
    ((void)(fake), (void)(bottom), (void)(size))
#define STACK ((size_t)64 << 10)
#endif
#if defined(__SANITIZE_THREAD__)
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
#else
#define __tsan_get_current_fiber() NULL
#define __tsan_create_fiber(flags) NULL
#define __tsan_switch_to_fiber(fiber, flags) ((void)(fiber))
#endif

struct emulated_fiber {
    void *stack_pointer;
    ucontext_t context; /* not on x86-64 */
    char *stack;        /* NULL: the host's */
    void (*entry)(void);
    void *fake, *tsan;
    emulated_fiber *next; /* in the pool */
};

static emulated_fiber host, *running = &host, *before, *pool;
static const void *host_bottom;
static size_t host_size;

#if defined(__x86_64__)
void emulated_switch(void **save, void *load);
__asm__(".text\n.type emulated_switch,@function\nemulated_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
#endif

/* On a stack of its own, after a jump. */
static void arrive(const emulated_fiber *self)
{
    const void *bottom = NULL;
    size_t size = 0;
    __sanitizer_finish_switch_fiber(self->fake, &bottom, &size);
    if (before == &host) {
        host_bottom = bottom;
        host_size = size;
    }
}

static void start(void)
{
    arrive(running);
    running->entry();
    abort();
}

static void prepare(emulated_fiber *fiber)
{
#if defined(__x86_64__)
    void **top = (void **)(void *)(fiber->stack + STACK) - 1; /* as behind a call: 16 n + 8 */
    *--top = (void *)(uintptr_t)start;
    fiber->stack_pointer = top - 6;
#else
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = STACK;
    makecontext(&fiber->context, start, 0);
#endif
}

static void jump(emulated_fiber *from, emulated_fiber *to)
{
    before = from;
    running = to;
    __tsan_switch_to_fiber(to->tsan, 0);
#if defined(__x86_64__)
    emulated_switch(&from->stack_pointer, to->stack_pointer);
#else
    swapcontext(&from->context, &to->context);
#endif
}

emulated_fiber *emulated_fiber_take(void (*entry)(void))
{
    emulated_fiber *fiber = pool;
    if (fiber) {
        pool = fiber->next;
    } else {
        fiber = calloc(1, sizeof(*fiber));
        fiber->stack = aligned_alloc(64, STACK);
        fiber->tsan = __tsan_create_fiber(0);
    }
    fiber->entry = entry;
    prepare(fiber);
    return fiber;
}

void emulated_fiber_release(emulated_fiber *fiber)
{
    fiber->next = pool;
    pool = fiber;
}

emulated_fiber *emulated_fiber_resume(emulated_fiber *fiber)
{
    host.tsan = __tsan_get_current_fiber();
    __sanitizer_start_switch_fiber(&host.fake, fiber->stack, STACK);
    jump(&host, fiber);
    __sanitizer_finish_switch_fiber(host.fake, NULL, NULL);
    return before;
}

emulated_fiber *emulated_fiber_self(void)
{
    return running;
}

void emulated_fiber_go(emulated_fiber *fiber)
{
    emulated_fiber *self = running;
    __sanitizer_start_switch_fiber(&self->fake, fiber ? fiber->stack : host_bottom,
                                   fiber ? STACK : host_size);
    jump(self, fiber ? fiber : &host);
    arrive(self);
}
