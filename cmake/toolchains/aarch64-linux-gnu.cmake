# 64-bit ARM Linux, glibc: Raspberry Pi 3 and later with a 64-bit system, Jetson, most gateways.
# Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross; qemu-user-static to run the tests.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(FEDGE_STATIC -static-pie)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -cpu cortex-a72)
include("${CMAKE_CURRENT_LIST_DIR}/linux.cmake")
