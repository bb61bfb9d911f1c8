# Fuzzers, compiled by clang with libFuzzer and the address and undefined sanitizers, next to a build
# by any other compiler. Sets FEDGE_HAVE_FUZZ; without clang's libFuzzer the fuzzers are left out.

set(FEDGE_FUZZ_SECONDS 20 CACHE STRING "Seconds that each fuzzer runs in the tests")
set(FEDGE_FUZZ_SOAK_SECONDS 600 CACHE STRING "Seconds that each fuzzer runs under the label soak")
# A fuzzer that runs for seconds does not repay what optimising costs.
set(fedge_fuzz_optimise -O1)
if(NOT FEDGE_LONG_TESTS)
  set(fedge_fuzz_optimise -O0)
endif()
set(fedge_fuzz_flags -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all)

find_program(FEDGE_CLANG clang)
mark_as_advanced(FEDGE_CLANG)
if(FEDGE_SANITIZE)
  set(FEDGE_HAVE_FUZZ OFF)
elseif(FEDGE_CLANG AND NOT DEFINED FEDGE_HAVE_FUZZ)
  set(probe "${CMAKE_CURRENT_BINARY_DIR}/probe.c")
  file(WRITE "${probe}" "int LLVMFuzzerTestOneInput(const unsigned char *data, unsigned long size)\n"
    "{\n    return data == 0 && size != 0;\n}\n")
  execute_process(COMMAND "${FEDGE_CLANG}" ${fedge_fuzz_flags} "${probe}" -o "${probe}.out"
    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed EQUAL 0)
    set(FEDGE_HAVE_FUZZ ON CACHE INTERNAL "clang has libFuzzer")
  endif()
endif()
if(FEDGE_HAVE_FUZZ)
  message(STATUS "Fuzzers: on")
elseif(FEDGE_SANITIZE)
  message(STATUS "Fuzzers: left out (they bring their own sanitizers)")
else()
  message(STATUS "Fuzzers: left out, because this machine lacks clang with libFuzzer (run cmake/setup.sh --tests)")
endif()

# Compiles one source, once for all fuzzers of this folder, and hands its object back in [out].
function(fedge_fuzz_object source folder out)
  cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${folder}" NORMALIZE)
  cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE short)
  string(REPLACE "/" "." object "${short}")
  set(object "${CMAKE_CURRENT_BINARY_DIR}/objects/${object}.o")
  set(${out} "${object}" PARENT_SCOPE)
  get_property(known GLOBAL PROPERTY fedge_fuzz_objects)
  if(object IN_LIST known)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY fedge_fuzz_objects "${object}")
  get_property(own_options SOURCE "${source}" DIRECTORY "${folder}" PROPERTY COMPILE_OPTIONS)
  get_property(own_definitions SOURCE "${source}" DIRECTORY "${folder}" PROPERTY COMPILE_DEFINITIONS)
  list(FILTER own_definitions EXCLUDE REGEX "^LLVMFuzzerTestOneInput=") # as corpora.c calls it
  list(TRANSFORM own_definitions PREPEND -D)
  add_custom_command(OUTPUT "${object}"
    COMMAND "${FEDGE_CLANG}" -std=c11 -ffp-contract=off -gline-tables-only ${fedge_fuzz_optimise} -fno-omit-frame-pointer
            -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
            "-I${PROJECT_SOURCE_DIR}"
            ${own_options} ${own_definitions} -MMD -MF "${object}.d" -c "${source}" -o "${object}"
    DEPENDS "${source}" DEPFILE "${object}.d" COMMENT "Fuzzer object ${short}" VERBATIM)
endfunction()

# fedge_fuzzer(name SOURCES file... [LIBS fedge-library...] [SYSTEM library...]): the fuzzer fuzz_<name>
# of the given files and of all sources of fedge's libraries LIBS (named with those that they use),
# linked with the system's libraries SYSTEM (z, cjson, m). Its seeds are in corpus/<name>; what it
# learns is kept in the build tree; what makes it fail is written there as finding-*.
function(fedge_fuzzer name)
  if(NOT FEDGE_HAVE_FUZZ)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS;SYSTEM")
  set(objects)
  set(archives)
  foreach(source IN LISTS arg_SOURCES)
    fedge_fuzz_object("${source}" "${CMAKE_CURRENT_SOURCE_DIR}" object)
    list(APPEND objects "${object}")
  endforeach()
  foreach(library IN LISTS arg_LIBS)
    get_target_property(sources ${library} SOURCES)
    get_target_property(folder ${library} SOURCE_DIR)
    foreach(source IN LISTS sources)
      # The training kernels parse nothing and take clang longest: they come from the library.
      if(source MATCHES "^kernels/")
        list(APPEND archives "$<TARGET_FILE:${library}>")
      elseif(source MATCHES "\\.c$")
        fedge_fuzz_object("${source}" "${folder}" object)
        list(APPEND objects "${object}")
      endif()
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES archives)
  list(TRANSFORM arg_SYSTEM PREPEND -l)
  set(program "${CMAKE_CURRENT_BINARY_DIR}/programs/fuzz_${name}")
  file(MAKE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/programs" "${CMAKE_CURRENT_BINARY_DIR}/objects")
  add_custom_command(OUTPUT "${program}"
    COMMAND "${FEDGE_CLANG}" ${fedge_fuzz_flags} ${objects} ${archives} ${arg_SYSTEM} -o "${program}"
    DEPENDS ${objects} ${archives} COMMENT "Fuzzer fuzz_${name}" VERBATIM)
  add_custom_target(fuzz_${name} DEPENDS "${program}")
  fedge_built_for(fuzz fuzz_${name})

  set(learnt "${CMAKE_CURRENT_BINARY_DIR}/learnt/${name}")
  set(seeds "${CMAKE_CURRENT_SOURCE_DIR}/corpus/${name}")
  file(MAKE_DIRECTORY "${learnt}")
  if(NOT IS_DIRECTORY "${seeds}")
    set(seeds)
  endif()
  foreach(kind fuzz soak)
    set(seconds ${FEDGE_FUZZ_SECONDS})
    set(test fuzz_${name})
    if(kind STREQUAL "soak")
      set(seconds ${FEDGE_FUZZ_SOAK_SECONDS})
      set(test soak_fuzz_${name})
    endif()
    math(EXPR timeout_s "${seconds} * 2 + 60")
    fedge_script_test(${test} BUSY LABEL ${kind} TIMEOUT ${timeout_s}
      COMMAND "${program}" -max_total_time=${seconds} -timeout=100 -rss_limit_mb=2048 -verbosity=0
              -print_final_stats=1 "-artifact_prefix=${CMAKE_CURRENT_BINARY_DIR}/finding-${name}-"
              "${learnt}" ${seeds})
  endforeach()
endfunction()
