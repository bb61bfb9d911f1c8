# Cortex-M55 with double-precision FPU and MVE, newlib.
# Debian: gcc-arm-none-eabi libnewlib-arm-none-eabi; qemu-system-arm to run the tests.

set(FEDGE_MCU_FLAGS "-mcpu=cortex-m55 -mfloat-abi=hard")
set(FEDGE_MCU_MACHINE mps3-an547)
include("${CMAKE_CURRENT_LIST_DIR}/cortex-m.cmake")
