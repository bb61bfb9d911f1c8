/* The boards of tests/mcu: Cortex-M under QEMU, spoken to by semihosting. The same functions exist
 * for the PC (board_host.c), so that one program runs on both. */
#ifndef FEDGE_TESTS_MCU_BOARD_H
#define FEDGE_TESTS_MCU_BOARD_H

#include <stdint.h>

/* Text to the console. */
void board_write(const char *text);

/* Instructions executed so far, modulo 2^32, in steps of some tens. 0 on the PC. Between two calls
 * there may be at most 2^24 ticks of the system timer: 500 million instructions. */
uint32_t board_instructions(void);

/* Bytes of constants and code, of variables, and of stack used so far. 0 on the PC. */
uint32_t board_flash_bytes(void);
uint32_t board_static_bytes(void);
uint32_t board_stack_bytes(void);

#endif
