# The functions that the folders' CMakeLists.txt are written with.

add_custom_target(programs COMMENT "Every program in ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")

# fedge_add_folders(folder...): adds those that have a CMakeLists.txt.
function(fedge_add_folders)
  foreach(folder IN LISTS ARGN)
    if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${folder}/CMakeLists.txt")
      add_subdirectory(${folder})
    endif()
  endforeach()
endfunction()

# fedge_library(name SOURCES file... [LIBS target...]): a static library, lib<name>.a.
function(fedge_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC fedge_options ${arg_LIBS})
endfunction()

# fedge_fast_sources(file... [UNROLLED file...]): those of this folder that FEDGE_SMALL must not make
# slow. UNROLLED: vectors and unrolled by hand, so that -O3 would make them larger but not faster.
# Functions begin at any byte: steps of 16 cost 1.8 KB, and kernels are entered seldom for what they do.
function(fedge_fast_sources)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "UNROLLED")
  if(FEDGE_SMALL)
    set_property(SOURCE ${arg_UNPARSED_ARGUMENTS} APPEND PROPERTY COMPILE_OPTIONS -O3 -fno-align-functions)
    set_property(SOURCE ${arg_UNROLLED} APPEND PROPERTY COMPILE_OPTIONS -O2 -fno-align-functions)
  endif()
endfunction()

# fedge_program(name SOURCES file... [LIBS target...] [INSTALL] [COMMANDS word...]): bin/<name>, part of
# the target "programs". INSTALL: it is installed, with a man page made of its --help and that of its
# COMMANDS.
function(fedge_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "INSTALL" "" "SOURCES;LIBS;COMMANDS")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE fedge_options ${arg_LIBS})
  add_dependencies(programs ${name})
  if(arg_INSTALL)
    install(TARGETS ${name} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
    set_property(TARGET ${name} PROPERTY fedge_commands "${arg_COMMANDS}")
    set_property(GLOBAL APPEND PROPERTY fedge_installed_programs ${name})
  endif()
endfunction()

# What tests/run.sh builds for tests with the labels race and fuzz alone.
add_custom_target(race_programs)
add_custom_target(fuzz_programs)

# fedge_built_for(label target...): not built but by [label]_programs.
function(fedge_built_for label)
  add_dependencies(${label}_programs ${ARGN})
  set_property(TARGET ${ARGN} PROPERTY EXCLUDE_FROM_ALL ON)
endfunction()

# fedge_for_long_tests(program...): not built without FEDGE_LONG_TESTS, unless asked for by name.
function(fedge_for_long_tests)
  if(NOT FEDGE_LONG_TESTS)
    set_property(TARGET ${ARGN} PROPERTY EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# fedge_add_labels(out name): adds to a test's labels what follows from them and from its name. "threads": it has
# threads, so the thread sanitizer runs it. "on-4-threads": it is there on one network thread as well. net-1 … net-3,
# long-1 … long-6, unit-1 … unit-6 and heavy-1 … heavy-3, in turn: one part of the tests with that label. In a build
# for sanitizers a heavy test is labelled heavy in place of unit.
function(fedge_add_labels out name)
  set(labels ${${out}})
  if(name MATCHES "_on_4_threads$" AND NOT "long" IN_LIST labels)
    list(APPEND labels on-4-threads threads)
  elseif(name IN_LIST FEDGE_TESTS_WITH_THREADS)
    list(APPEND labels threads)
  endif()
  if(FEDGE_SANITIZE AND name IN_LIST FEDGE_HEAVY_TESTS)
    list(APPEND labels heavy)
  endif()
  set(parts)
  set(kinds net long unit heavy)
  set(numbers 3 6 6 3)
  foreach(kind number IN ZIP_LISTS kinds numbers)
    if(kind IN_LIST labels)
      string(MAKE_C_IDENTIFIER "fedge_turn_${kind}_of_${labels}" counter)
      get_property(turn GLOBAL PROPERTY ${counter})
      math(EXPR turn "0${turn} % ${number} + 1")
      set_property(GLOBAL PROPERTY ${counter} ${turn})
      list(APPEND parts ${kind}-${turn})
    endif()
  endforeach()
  if("heavy" IN_LIST labels)
    list(REMOVE_ITEM labels unit)
  endif()
  set(${out} ${labels} ${parts} PARENT_SCOPE)
endfunction()

# What every test has in common. A limit ends what hangs, never what is slow: a machine may have twenty processes for
# each core, and a sanitizer or an emulator makes programs several times slower. Places are PROCESSORS of ctest:
# tests/run.sh has four or six for each core, of which a test that computes takes two and one that mostly waits takes
# one. Those that compute begin before those that wait, and of both those with a high limit first: the places that a
# test leaves go to one of its kind, and both kinds run beside each other.
function(fedge_test_properties name labels timeout_s places env)
  fedge_add_labels(labels ${name})
  math(EXPR cost "${timeout_s} + (${places} - 1) * 10000")
  math(EXPR limit_s "${timeout_s} * 5 + 600")
  if(FEDGE_SANITIZE OR CMAKE_CROSSCOMPILING)
    math(EXPR limit_s "${limit_s} * 2")
  endif()
  set(after_return 0)
  if(FEDGE_STACK_USE_AFTER_RETURN STREQUAL "ON" OR FEDGE_STACK_USE_AFTER_RETURN IN_LIST labels)
    set(after_return 1)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${limit_s} COST ${cost}
    PROCESSORS ${places})
  set_property(TEST ${name} PROPERTY ENVIRONMENT
    "FEDGE_SOURCE_DIR=${PROJECT_SOURCE_DIR}"
    "FEDGE_BINARY_DIR=${PROJECT_BINARY_DIR}"
    "FEDGE_BIN_DIR=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}"
    "FEDGE_SANITIZE=${FEDGE_SANITIZE}"
    "ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=${after_return}"
    "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1"
    "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1"
    ${env})
endfunction()

# fedge_early_tests(name...): these wait for a minute or more, and would run alone at the end.
function(fedge_early_tests)
  set_tests_properties(${ARGN} PROPERTIES COST 100000)
endfunction()

# fedge_test(name SOURCES file... [LIBS target...] [LABEL unit] [TIMEOUT seconds] [ENV NAME=VALUE...]
#            [ALONE] [LONG] [WAITS]): a cmocka program. It is run in its folder of the build tree and sees the
# macros FEDGE_SOURCE_DIR and FEDGE_BINARY_DIR, and FEDGE_EMULATED when compiled for another machine. ALONE: no
# other test runs at the same time. LONG: labelled long, too, and left out by tests/run.sh alone. WAITS: it waits
# rather than computes.
function(fedge_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "ALONE;LONG;WAITS" "LABEL;TIMEOUT" "SOURCES;LIBS;ENV")
  if(NOT arg_LABEL)
    set(arg_LABEL unit)
  endif()
  if(arg_LONG)
    list(APPEND arg_LABEL long)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  set(places 2)
  if(arg_WAITS)
    set(places 1)
  endif()
  # CMake would take a library that this build leaves out for one of the system's, until it is linked.
  foreach(library ${arg_LIBS})
    if(library MATCHES "^fedge_" AND NOT TARGET ${library})
      message(FATAL_ERROR "${name} needs ${library}, which this build leaves out")
    endif()
  endforeach()
  add_executable(${name} ${arg_SOURCES})
  if(arg_LONG)
    fedge_for_long_tests(${name})
  endif()
  if(FEDGE_SANITIZE MATCHES "thread" AND NOT name IN_LIST FEDGE_TESTS_WITH_THREADS)
    set_property(TARGET ${name} PROPERTY EXCLUDE_FROM_ALL ON)
  endif()
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
  target_link_libraries(${name} PRIVATE fedge_options ${arg_LIBS} fedge::cmocka)
  target_compile_definitions(${name} PRIVATE
    FEDGE_SOURCE_DIR="${PROJECT_SOURCE_DIR}" FEDGE_BINARY_DIR="${PROJECT_BINARY_DIR}"
    $<$<BOOL:${CMAKE_CROSSCOMPILING}>:FEDGE_EMULATED>)
  # A test's own code runs too short to repay -O3, but under an emulator.
  if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT CMAKE_CROSSCOMPILING)
    target_compile_options(${name} PRIVATE -O1)
  endif()
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
  fedge_test_properties(${name} "${arg_LABEL}" ${arg_TIMEOUT} ${places} "${arg_ENV}")
  if(arg_ALONE)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
  endif()
endfunction()

# fedge_script_test(name COMMAND word... [LABEL net] [TIMEOUT seconds] [ENV NAME=VALUE...] [ALONE] [LONG] [BUSY]):
# any command; 77 as its exit code means skipped. It finds its way by the environment variables
# FEDGE_SOURCE_DIR, FEDGE_BINARY_DIR, FEDGE_BIN_DIR (the programs) and FEDGE_SANITIZE. ALONE and LONG as
# above. BUSY: it computes rather than waits.
function(fedge_script_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "ALONE;LONG;BUSY" "LABEL;TIMEOUT" "COMMAND;ENV")
  if(NOT arg_LABEL)
    set(arg_LABEL net)
  endif()
  if(arg_LONG)
    list(APPEND arg_LABEL long)
  endif()
  set(places 1)
  if(arg_BUSY)
    set(places 2)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${arg_COMMAND} WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
  fedge_test_properties(${name} "${arg_LABEL}" ${arg_TIMEOUT} ${places} "${arg_ENV}")
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
  if(arg_ALONE)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
  endif()
endfunction()

# fedge_nvcc(variable file.cu): compiles a file for FEDGE_CUDA_BUILT and hands its object back. nvcc is run
# by a command of its own rather than as a language of the project, so that programs are linked as C.
function(fedge_nvcc out source)
  cmake_path(GET source STEM name)
  set(object "${CMAKE_CURRENT_BINARY_DIR}/${name}.o")
  set(options -O3 -std=c++17 --fmad=false "-I${PROJECT_SOURCE_DIR}"
    -Xcompiler=-fPIC,-ffunction-sections,-fno-exceptions,-fno-threadsafe-statics,-fstack-protector-strong)
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    list(APPEND options -Xcompiler=-fcf-protection=full)
  endif()
  foreach(architecture IN LISTS FEDGE_CUDA_BUILT)
    list(APPEND options "--generate-code=arch=compute_${architecture},code=sm_${architecture}")
  endforeach()
  # Newer GPUs than those compile this at their first use.
  list(GET FEDGE_CUDA_BUILT -1 architecture)
  list(APPEND options "--generate-code=arch=compute_${architecture},code=compute_${architecture}")
  add_custom_command(OUTPUT "${object}"
    COMMAND "${FEDGE_NVCC}" ${options} --threads 0 -MD -MF "${object}.d"
      -c "${CMAKE_CURRENT_SOURCE_DIR}/${source}" -o "${object}"
    DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${source}"
    DEPFILE "${object}.d"
    COMMENT "Compiling ${source} for ${FEDGE_CUDA_BUILT}"
    VERBATIM)
  set(${out} "${object}" PARENT_SCOPE)
endfunction()
