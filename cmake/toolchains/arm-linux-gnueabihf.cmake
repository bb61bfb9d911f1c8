# 32-bit ARM Linux with NEON, glibc: Cortex-A7 and later (Raspberry Pi 2 and later with a 32-bit system).
# Debian: gcc-arm-linux-gnueabihf libc6-dev-armhf-cross; qemu-user-static to run the tests.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR armv7l)
set(CMAKE_C_COMPILER arm-linux-gnueabihf-gcc)
set(CMAKE_C_FLAGS_INIT "-march=armv7-a -mfpu=neon-vfpv4")
set(FEDGE_STATIC -static) # Debian has no start-up code for -static-pie here
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-arm-static -cpu cortex-a7)
include("${CMAKE_CURRENT_LIST_DIR}/linux.cmake")
