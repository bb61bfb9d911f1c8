/* The PC in the place of a board: it prints, and counts nothing. */
#include "tests/mcu/board.h"

#include <stdio.h>

void board_write(const char *text)
{
    (void)fputs(text, stdout);
}

uint32_t board_instructions(void)
{
    return 0;
}

uint32_t board_flash_bytes(void)
{
    return 0;
}

uint32_t board_static_bytes(void)
{
    return 0;
}

uint32_t board_stack_bytes(void)
{
    return 0;
}
