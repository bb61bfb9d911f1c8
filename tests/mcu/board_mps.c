/* Start-up, console and instruction counter for QEMU's mps2-an386, mps2-an500 and mps3-an547. */
#include "tests/mcu/board.h"

#include <stdint.h>
#include <string.h>

#define CPACR (*(volatile uint32_t *)0xE000ED88u)    /* who may use the FPU */
#define SYST_CSR (*(volatile uint32_t *)0xE000E010u) /* the system timer: control, */
#define SYST_RVR (*(volatile uint32_t *)0xE000E014u) /* the value it starts again from, */
#define SYST_CVR (*(volatile uint32_t *)0xE000E018u) /* and its present value, counting down */
#define SYST_MASK 0xFFFFFFu
#define PAINT 0xA5A5A5A5u /* of stack not yet used */

/* Semihosting calls. */
#define SYS_WRITE0 0x04u
#define SYS_EXIT 0x18u
#define EXIT_OK 0x20026u /* ADP_Stopped_ApplicationExit */
#define EXIT_BAD 0x20023u

int main(void);
void reset(void);
int *__errno(void);

/* Set by board.ld. */
extern uint32_t board_data_load[], board_data_start[], board_data_end[], board_bss_start[];
extern uint32_t board_bss_end[], board_stack_top[], board_flash_end[];

static uint32_t instructions_per_1024_ticks;
static uint32_t last_tick, ticks;

static uint32_t semihost(uint32_t call, uintptr_t argument)
{
    register uint32_t r0 __asm__("r0") = call;
    register uintptr_t r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void board_write(const char *text)
{
    (void)semihost(SYS_WRITE0, (uintptr_t)text);
}

static void fault(void)
{
    board_write("fault\n");
    for (;;)
        (void)semihost(SYS_EXIT, EXIT_BAD);
}

/* newlib's mathematics report here; its own variable comes with a kilobyte of others. */
int *__errno(void)
{
    static int number;
    return &number;
}

static uint32_t count_ticks(void)
{
    const uint32_t now = SYST_CVR;
    ticks += (last_tick - now) & SYST_MASK;
    last_tick = now;
    return ticks;
}

uint32_t board_instructions(void)
{
    return (uint32_t)((uint64_t)count_ticks() * instructions_per_1024_ticks / 1024);
}

/* A loop of known length tells how many instructions QEMU executes in a tick. */
static void start_counter(void)
{
    const uint32_t loops = 500000;
    SYST_RVR = SYST_MASK;
    SYST_CVR = 0;
    SYST_CSR = 5;           /* on, by the processor's clock */
    while (SYST_CVR == 0) { /* it loads its start value at its first tick */
    }
    last_tick = SYST_CVR;
    const uint32_t before = count_ticks();
    uint32_t n = loops;
    __asm__ volatile("1: subs %0, %0, #1\n\tbne 1b" : "+r"(n) : : "cc");
    instructions_per_1024_ticks = (uint32_t)((uint64_t)2 * loops * 1024 / (count_ticks() - before));
}

uint32_t board_flash_bytes(void)
{
    return (uint32_t)(uintptr_t)board_flash_end;
}

uint32_t board_static_bytes(void)
{
    return (uint32_t)((uintptr_t)board_bss_end - (uintptr_t)board_data_start);
}

uint32_t board_stack_bytes(void)
{
    const uint32_t *at = board_bss_end;
    while (*at == PAINT)
        at++;
    return (uint32_t)((uintptr_t)board_stack_top - (uintptr_t)at);
}

void reset(void)
{
    CPACR |= 0xFu << 20;
    __asm__ volatile("dsb\n\tisb");
    memcpy(board_data_start, board_data_load,
           (uintptr_t)board_data_end - (uintptr_t)board_data_start);
    memset(board_bss_start, 0, (uintptr_t)board_bss_end - (uintptr_t)board_bss_start);
    const uint32_t *here = __builtin_frame_address(0);
    for (uint32_t *at = board_bss_end; at < here - 64; at++)
        *at = PAINT;
    start_counter();
    const int code = main();
    (void)semihost(SYS_EXIT, code == 0 ? EXIT_OK : EXIT_BAD);
    fault();
}

/* The stack and the first sixteen exceptions; none but reset is expected. */
__attribute__((section(".vectors"), used)) static const uintptr_t vectors[16] = {
    (uintptr_t)board_stack_top, (uintptr_t)reset, (uintptr_t)fault, (uintptr_t)fault,
    (uintptr_t)fault,           (uintptr_t)fault, (uintptr_t)fault, (uintptr_t)fault,
};
