# x86-64 Linux, musl: one static program for any distribution. Debian: musl-tools.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER musl-gcc)
# The kernel's headers, which musl-gcc does not look for; cmake/deps.sh makes the folder.
set(CMAKE_C_FLAGS_INIT "-idirafter ${CMAKE_CURRENT_LIST_DIR}/../../build/deps-musl/kernel-headers")
set(FEDGE_STATIC -static) # musl-gcc knows no -static-pie
include("${CMAKE_CURRENT_LIST_DIR}/linux.cmake")
set(FEDGE_RELRO norelro) # musl protects nothing in such a program; the page that ends it would be filled up
