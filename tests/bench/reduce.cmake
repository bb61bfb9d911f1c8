# fedge's half of tests/bench/reduce.sh, in builds with tests and in those of tests/gpu/run.sh.
set(bench "${PROJECT_SOURCE_DIR}/tests/bench")
add_executable(bench_reduce_fedge ${bench}/reduce_fedge.c ${bench}/train_peak.c)
target_link_libraries(bench_reduce_fedge PRIVATE fedge_options fedge_reduce m)
fedge_for_long_tests(bench_reduce_fedge)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(${bench}/train_peak.c PROPERTIES
    COMPILE_OPTIONS "-O3;-march=native;-mprefer-vector-width=512")
endif()
