# Cortex-M7 with double-precision FPU (STM32F7, STM32H7, i.MX RT), newlib.
# Debian: gcc-arm-none-eabi libnewlib-arm-none-eabi; qemu-system-arm to run the tests.

set(FEDGE_MCU_FLAGS "-mcpu=cortex-m7 -mfpu=fpv5-d16 -mfloat-abi=hard")
set(FEDGE_MCU_MACHINE mps2-an500)
include("${CMAKE_CURRENT_LIST_DIR}/cortex-m.cmake")
