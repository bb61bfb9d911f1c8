# Cortex-M4 with single-precision FPU (STM32F4, nRF52), newlib.
# Debian: gcc-arm-none-eabi libnewlib-arm-none-eabi; qemu-system-arm to run the tests.

set(FEDGE_MCU_FLAGS "-mcpu=cortex-m4 -mfpu=fpv4-sp-d16 -mfloat-abi=hard")
set(FEDGE_MCU_MACHINE mps2-an386)
include("${CMAKE_CURRENT_LIST_DIR}/cortex-m.cmake")
