# How fedge's own C is compiled: the target fedge_options, which cmake/Fedge.cmake links to all.

# A machine without an operating system: the training core only, on the C library's mathematics.
if(CMAKE_SYSTEM_NAME STREQUAL "Generic")
  set(FEDGE_MCU ON)
else()
  set(FEDGE_MCU OFF)
endif()

# How programs are linked statically: -static-pie or -static; empty: not.
set(FEDGE_STATIC "" CACHE STRING "The compiler's option to link programs statically, or nothing")
# With -static-pie CMake must not add the -pie of its own, which makes programs dynamic.
if(NOT FEDGE_MCU AND NOT FEDGE_STATIC STREQUAL "-static")
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  if(NOT FEDGE_STATIC)
    include(CheckPIESupported)
    check_pie_supported(LANGUAGES C)
  endif()
endif()

# Is memory that only the start of a program writes set apart, to be protected then? A toolchain says
# where nothing would protect it.
if(NOT DEFINED FEDGE_RELRO)
  set(FEDGE_RELRO relro)
endif()

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
# Asserts stay in release builds: an aggregator that has lost its way must stop, and its journal
# brings the next process back to the same bits.
# Functions and lines for backtraces; variables would take longer to compile and to link.
set(CMAKE_C_FLAGS_RELEASE "-O3 -g1")
# For a device where megabytes count: everything but the kernels (fedge_fast_sources) is made small.
option(FEDGE_SMALL "Prefer small programs to fast ones, but for the kernels" OFF)
if(FEDGE_SMALL)
  set(CMAKE_C_FLAGS_RELEASE "-Oz -g -fno-asynchronous-unwind-tables")
elseif(FEDGE_MCU)
  set(CMAKE_C_FLAGS_RELEASE "-O2 -g") # flash is scarce, and the kernels are unrolled by hand
endif()
set(CMAKE_C_FLAGS_DEBUG "-O0 -g")

add_library(fedge_options INTERFACE)
target_include_directories(fedge_options INTERFACE "${PROJECT_SOURCE_DIR}")
# A model's description, and the stack while one is planned, have room for this many layers.
set(FEDGE_MAX_LAYERS "" CACHE STRING "The most layers of a model; empty: 256 (edge/train/model.h)")
if(FEDGE_MAX_LAYERS)
  target_compile_definitions(fedge_options INTERFACE FEDGE_MAX_LAYERS=${FEDGE_MAX_LAYERS})
endif()
# A failed assert names its file from the top of the tree: the same program wherever it is built.
target_compile_options(fedge_options INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>)
# Sums and strategies must give the same bits everywhere: fused multiply-add only by intrinsic.
target_compile_options(fedge_options INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-ffp-contract=off;-Wall;-Wextra;-Wconversion;-Wshadow;-Wstrict-prototypes;-Wmissing-prototypes;-Wcast-qual;-Wformat=2;-Wvla>
  # Messages are cut to their buffers on purpose; what may be uninitialized is a guess that depends on
  # what each target inlines: the native build and clang-tidy look after it.
  $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>
  $<$<AND:$<C_COMPILER_ID:GNU>,$<BOOL:${CMAKE_CROSSCOMPILING}>>:-Wno-maybe-uninitialized>
  $<$<AND:$<COMPILE_LANGUAGE:C>,$<BOOL:${FEDGE_WERROR}>>:-Werror>)

if(FEDGE_SANITIZE)
  # -O1 with frame pointers: stack traces stay readable and the tests fast enough. -g1 has the lines that reports name;
  # variables would double the objects.
  target_compile_options(fedge_options INTERFACE
    $<$<COMPILE_LANGUAGE:C>:-fsanitize=${FEDGE_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer;-O1;-g1>)
  target_link_options(fedge_options INTERFACE -fsanitize=${FEDGE_SANITIZE})
elseif(FEDGE_MCU)
  target_compile_options(fedge_options INTERFACE -ffunction-sections -fdata-sections)
  target_link_options(fedge_options INTERFACE -Wl,--gc-sections)
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(fedge_options INTERFACE
    $<$<COMPILE_LANGUAGE:C>:-fstack-protector-strong;-D_FORTIFY_SOURCE=2;-ffunction-sections;-fdata-sections>)
  # Where jumps and calls through pointers may land. Static programs start with code that does without.
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64" AND NOT FEDGE_STATIC)
    target_compile_options(fedge_options INTERFACE $<$<COMPILE_LANGUAGE:C>:-fcf-protection=full>)
  endif()
  target_link_options(fedge_options INTERFACE
    -Wl,--gc-sections -Wl,--as-needed -Wl,-z,${FEDGE_RELRO} -Wl,-z,now)
endif()
target_link_options(fedge_options INTERFACE ${FEDGE_STATIC})
if(FEDGE_STATIC STREQUAL "-static")
  target_compile_options(fedge_options INTERFACE $<$<COMPILE_LANGUAGE:C>:-fno-pie>) # shorter addresses
endif()
option(FEDGE_TARGETS "Learn numbers (a job's data.targets), not only classes" ON)
if(NOT FEDGE_TARGETS)
  target_compile_definitions(fedge_options INTERFACE FEDGE_WITH_TARGETS=0)
endif()
if(FEDGE_SMALL OR FEDGE_MCU)
  target_compile_definitions(fedge_options INTERFACE FEDGE_FIRST_OPTIMIZERS)
endif()
if(FEDGE_SMALL)
  target_compile_definitions(fedge_options INTERFACE FEDGE_SMALL)
  # What is used once is put where it is used. Libraries keep objects for linkers of another compiler.
  target_compile_options(fedge_options INTERFACE $<$<COMPILE_LANGUAGE:C>:-flto;-ffat-lto-objects>)
  target_link_options(fedge_options INTERFACE -flto=auto;-flto-partition=one)
  # No pages that are half empty, and fewer gaps between what is aligned differently.
  target_link_options(fedge_options INTERFACE -Wl,-z,noseparate-code -Wl,--sort-section=alignment)
endif()
