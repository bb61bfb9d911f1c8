# How fedge's own C is compiled: the target fedge_options, which cmake/Fedge.cmake links to all.

include(CheckPIESupported)
check_pie_supported(LANGUAGES C)

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# Asserts stay in release builds: an aggregator that has lost its way must stop, and its journal
# brings the next process back to the same bits.
set(CMAKE_C_FLAGS_RELEASE "-O3 -g")
set(CMAKE_C_FLAGS_DEBUG "-O0 -g")

add_library(fedge_options INTERFACE)
target_include_directories(fedge_options INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_definitions(fedge_options INTERFACE FEDGE_VERSION="${PROJECT_VERSION}")
# Sums and strategies must give the same bits everywhere: fused multiply-add only by intrinsic.
target_compile_options(fedge_options INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-ffp-contract=off;-Wall;-Wextra;-Wconversion;-Wshadow;-Wstrict-prototypes;-Wmissing-prototypes;-Wcast-qual;-Wformat=2;-Wvla>
  $<$<AND:$<COMPILE_LANGUAGE:C>,$<BOOL:${FEDGE_WERROR}>>:-Werror>)

if(FEDGE_SANITIZE)
  # -O1 with frame pointers: stack traces stay readable and the tests fast enough.
  target_compile_options(fedge_options INTERFACE
    $<$<COMPILE_LANGUAGE:C>:-fsanitize=${FEDGE_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer;-O1>)
  target_link_options(fedge_options INTERFACE -fsanitize=${FEDGE_SANITIZE})
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(fedge_options INTERFACE
    $<$<COMPILE_LANGUAGE:C>:-fstack-protector-strong;-D_FORTIFY_SOURCE=2;-ffunction-sections;-fdata-sections>)
  target_link_options(fedge_options INTERFACE
    -Wl,--gc-sections -Wl,--as-needed -Wl,-z,relro -Wl,-z,now)
endif()
