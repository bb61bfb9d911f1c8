/* On x86-64 a switch takes a few instructions; elsewhere it is swapcontext. */
#define _GNU_SOURCE /* mmap */

#include "tests/fibers/fiber.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
void __sanitizer_start_switch_fiber(void **fake, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *fake, const void **bottom, size_t *size);
void __asan_unpoison_memory_region(const volatile void *address, size_t size);
#else
#define __sanitizer_start_switch_fiber(fake, bottom, size)                                         \
    ((void)(fake), (void)(bottom), (void)(size))
#define __sanitizer_finish_switch_fiber(fake, bottom, size)                                        \
    ((void)(fake), (void)(bottom), (void)(size))
#define __asan_unpoison_memory_region(address, size) ((void)(address), (void)(size))
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

struct fiber {
    void *stack_pointer;
    ucontext_t context; /* not on x86-64 */
    char *stack;        /* NULL: the host's own stack */
    size_t size;        /* size of [stack] */
    void (*entry)(void);
    void *fake, *tsan;
    fiber *next; /* next in the pool */
};

static fiber host, *running = &host, *before, *pool;
static const void *host_bottom;
static size_t host_size;

#if defined(__x86_64__)
void fiber_switch(void **save, void *load);
__asm__(".text\n.type fiber_switch,@function\nfiber_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
#endif

/* Runs on the fiber's own stack after each switch to it. */
static void arrive(const fiber *self)
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

static void prepare(fiber *self)
{
#if defined(__x86_64__)
    void **top = (void **)(void *)(self->stack + self->size) - 1; /* as after a call: 16 n + 8 */
    *--top = (void *)(uintptr_t)start;
    self->stack_pointer = top - 6;
#else
    getcontext(&self->context);
    self->context.uc_stack.ss_sp = self->stack;
    self->context.uc_stack.ss_size = self->size;
    makecontext(&self->context, start, 0);
#endif
}

static void jump(fiber *from, fiber *to)
{
    before = from;
    running = to;
    __tsan_switch_to_fiber(to->tsan, 0);
#if defined(__x86_64__)
    fiber_switch(&from->stack_pointer, to->stack_pointer);
#else
    swapcontext(&from->context, &to->context);
#endif
}

/* A program with fibers may replace malloc, so this uses mmap. */
static void *map(size_t size)
{
    void *block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) {
        perror("fibers: mmap");
        abort();
    }
    return block;
}

fiber *fiber_take(void (*entry)(void), size_t stack_size)
{
    fiber **place = &pool;
    while (*place && (*place)->size != stack_size)
        place = &(*place)->next;
    fiber *self = *place;
    if (self) {
        *place = self->next;
    } else {
        self = map(sizeof(*self));
        self->stack = map(stack_size);
        self->size = stack_size;
        self->tsan = __tsan_create_fiber(0);
    }
    self->entry = entry;
    prepare(self);
    return self;
}

void fiber_release(fiber *self)
{
    /* Frames that never return leave red zones behind. */
    __asan_unpoison_memory_region(self->stack, self->size);
    self->next = pool;
    pool = self;
}

fiber *fiber_resume(fiber *to)
{
    host.tsan = __tsan_get_current_fiber();
    __sanitizer_start_switch_fiber(&host.fake, to->stack, to->size);
    jump(&host, to);
    __sanitizer_finish_switch_fiber(host.fake, NULL, NULL);
    return before;
}

fiber *fiber_self(void)
{
    return running;
}

void fiber_go(fiber *to)
{
    fiber *self = running;
    __sanitizer_start_switch_fiber(&self->fake, to ? to->stack : host_bottom,
                                   to ? to->size : host_size);
    jump(self, to ? to : &host);
    arrive(self);
}
