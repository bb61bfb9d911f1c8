# Libraries as imported targets: fedge::zlib, fedge::cjson, fedge::mbedtls, fedge::websockets,
# fedge::gcrypt, fedge::isal.
# Sets FEDGE_HAVE_IO, _FAST_INFLATE, _NETWORK, _FAST_CRYPTO, _AGGREGATOR, _CUDA, _MPI and _TESTS from the options of the same names,
# and FEDGE_HAVE_SIMULATOR.

set(FEDGE_DEPS "${PROJECT_SOURCE_DIR}/build/deps" CACHE PATH
    "Where cmake/deps.sh has installed libwebsockets and mbedTLS")
if(NOT FEDGE_MCU)
  find_package(Threads REQUIRED)
endif()
# An sdist of the Python package (cmake/wheel.sh) has their sources in it.
if(EXISTS "${PROJECT_SOURCE_DIR}/sources")
  execute_process(COMMAND "${CMAKE_COMMAND}" -E env "FEDGE_SOURCES=${PROJECT_SOURCE_DIR}/sources" "FEDGE_DEPS=${FEDGE_DEPS}"
                  bash "${PROJECT_SOURCE_DIR}/cmake/deps.sh" COMMAND_ERROR_IS_FATAL ANY)
endif()

# fedge_import(NAME HEADER header LIBRARY name [IN prefix]): defines fedge::NAME, or appends to
# fedge_missing what was not found. When compiling for another machine, all are in FEDGE_DEPS.
function(fedge_import name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "HEADER;LIBRARY;IN" "")
  set(where)
  if(CMAKE_CROSSCOMPILING)
    set(arg_IN "${FEDGE_DEPS}")
  endif()
  if(arg_IN)
    set(where PATHS "${arg_IN}" NO_DEFAULT_PATH PATH_SUFFIXES include lib)
  endif()
  find_path(FEDGE_${name}_INCLUDE ${arg_HEADER} ${where})
  find_library(FEDGE_${name}_LIBRARY ${arg_LIBRARY} ${where})
  mark_as_advanced(FEDGE_${name}_INCLUDE FEDGE_${name}_LIBRARY)
  if(FEDGE_${name}_INCLUDE AND FEDGE_${name}_LIBRARY)
    add_library(fedge::${name} UNKNOWN IMPORTED)
    set_target_properties(fedge::${name} PROPERTIES
      IMPORTED_LOCATION "${FEDGE_${name}_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${FEDGE_${name}_INCLUDE}")
  else()
    list(APPEND fedge_missing ${arg_LIBRARY})
    set(fedge_missing "${fedge_missing}" PARENT_SCOPE)
  endif()
endfunction()

# fedge_decide(NAME what missing...): turns option FEDGE_NAME into FEDGE_HAVE_NAME and says which.
function(fedge_decide name what advice)
  set(have OFF)
  if("${FEDGE_${name}}" STREQUAL "OFF")
    message(STATUS "${what}: left out (FEDGE_${name}=OFF)")
  elseif(NOT ARGN)
    set(have ON)
    message(STATUS "${what}: on")
  elseif("${FEDGE_${name}}" STREQUAL "AUTO")
    list(JOIN ARGN ", " list)
    message(STATUS "${what}: left out, because this machine lacks ${list} (${advice})")
  elseif("${FEDGE_${name}}" STREQUAL "ON")
    list(JOIN ARGN ", " list)
    message(FATAL_ERROR "${what} (FEDGE_${name}=ON) needs what was not found: ${list}. To have it: ${advice}.")
  else()
    message(FATAL_ERROR "FEDGE_${name} is '${FEDGE_${name}}'; it must be AUTO, ON or OFF.")
  endif()
  set(FEDGE_HAVE_${name} ${have} PARENT_SCOPE)
endfunction()

# --- files ---------------------------------------------------------------------------------------

set(fedge_missing)
fedge_import(zlib HEADER zlib.h LIBRARY z)
fedge_import(cjson HEADER cjson/cJSON.h LIBRARY cjson)
fedge_decide(IO "Job files and data sets" "run cmake/setup.sh" ${fedge_missing})

# Devices do with zlib alone, as they do with mbedTLS.
set(fedge_missing)
if(CMAKE_CROSSCOMPILING)
  set(fedge_missing "a build for this machine")
elseif(NOT FEDGE_HAVE_IO)
  set(fedge_missing "FEDGE_IO")
elseif(NOT FEDGE_FAST_INFLATE STREQUAL "OFF")
  fedge_import(isal HEADER isa-l/igzip_lib.h LIBRARY isal)
endif()
fedge_decide(FAST_INFLATE "Deflated updates by ISA-L" "run cmake/setup.sh" ${fedge_missing})

# --- network -------------------------------------------------------------------------------------

set(fedge_missing)
if(NOT FEDGE_HAVE_IO)
  set(fedge_missing "FEDGE_IO")
endif()
fedge_import(mbedcrypto HEADER mbedtls/version.h LIBRARY mbedcrypto IN "${FEDGE_DEPS}")
fedge_import(mbedx509 HEADER mbedtls/version.h LIBRARY mbedx509 IN "${FEDGE_DEPS}")
fedge_import(mbedtls HEADER mbedtls/version.h LIBRARY mbedtls IN "${FEDGE_DEPS}")
fedge_import(websockets HEADER libwebsockets.h LIBRARY websockets IN "${FEDGE_DEPS}")
if(NOT fedge_missing)
  # p256m and everest are parts of mbedTLS that it links as archives of their own.
  set_property(TARGET fedge::mbedcrypto PROPERTY INTERFACE_LINK_LIBRARIES
    "${FEDGE_DEPS}/lib/libeverest.a;${FEDGE_DEPS}/lib/libp256m.a;Threads::Threads")
  set_property(TARGET fedge::mbedx509 PROPERTY INTERFACE_LINK_LIBRARIES fedge::mbedcrypto)
  set_property(TARGET fedge::mbedtls PROPERTY INTERFACE_LINK_LIBRARIES fedge::mbedx509)
  set_property(TARGET fedge::websockets PROPERTY INTERFACE_LINK_LIBRARIES
    fedge::mbedtls Threads::Threads m)
endif()
fedge_decide(NETWORK "Client and identities" "run cmake/setup.sh" ${fedge_missing})

# Devices do with mbedTLS alone: libgcrypt is for this machine.
set(fedge_missing)
if(CMAKE_CROSSCOMPILING)
  set(fedge_missing "a build for this machine")
elseif(NOT FEDGE_HAVE_IO)
  set(fedge_missing "FEDGE_IO")
elseif(NOT FEDGE_FAST_CRYPTO STREQUAL "OFF")
  fedge_import(gcrypt HEADER gcrypt.h LIBRARY gcrypt)
endif()
fedge_decide(FAST_CRYPTO "Ciphers and hashes by libgcrypt" "run cmake/setup.sh" ${fedge_missing})

# Compiled for another machine, libwebsockets is without libev: devices need the client only.
set(fedge_missing)
if(NOT FEDGE_HAVE_NETWORK)
  set(fedge_missing "FEDGE_NETWORK")
endif()
fedge_import(ev HEADER ev.h LIBRARY ev)
# libev.so has functions with the names of libevent's, which Open MPI would find in place of those. Of
# the archive they stay out.
find_library(FEDGE_ev_ARCHIVE libev.a)
mark_as_advanced(FEDGE_ev_ARCHIVE)
if(TARGET fedge::ev AND FEDGE_ev_ARCHIVE)
  set_property(TARGET fedge::ev PROPERTY IMPORTED_LOCATION "${FEDGE_ev_ARCHIVE}")
endif()
if(NOT fedge_missing)
  set_property(TARGET fedge::websockets APPEND PROPERTY INTERFACE_LINK_LIBRARIES fedge::ev)
endif()
fedge_decide(AGGREGATOR "Aggregator" "run cmake/setup.sh" ${fedge_missing})

# The simulator shares the aggregator's rooms, but needs nothing of the network.
set(FEDGE_HAVE_SIMULATOR OFF)
if(FEDGE_HAVE_IO AND NOT FEDGE_AGGREGATOR STREQUAL "OFF" AND NOT CMAKE_CROSSCOMPILING)
  set(FEDGE_HAVE_SIMULATOR ON)
endif()
if(FEDGE_HAVE_SIMULATOR)
  message(STATUS "Simulator: on")
else()
  message(STATUS "Simulator: left out")
endif()

# --- several machines, GPUs, tests ---------------------------------------------------------------

# nvcc, CUDA's headers and its static runtime; the driver and NCCL are looked for when programs run.
include(GpuArchitectures)
set(FEDGE_CUDA_ARCHITECTURES NATIVE CACHE STRING
    "The GPUs to build for: NATIVE, those of this machine; ALL, what a release is for; or compute capabilities (75;90)")
set(fedge_missing)
set(advice "install the CUDA Toolkit, or set FEDGE_NVCC")
if(NOT FEDGE_CUDA STREQUAL "OFF")
  find_program(FEDGE_NVCC nvcc HINTS /usr/local/cuda/bin)
  mark_as_advanced(FEDGE_NVCC)
  if(FEDGE_NVCC)
    cmake_path(GET FEDGE_NVCC PARENT_PATH nvcc_bin)
    set(cuda_places HINTS "${nvcc_bin}/.." "${nvcc_bin}/../targets/${CMAKE_SYSTEM_PROCESSOR}-linux")
    find_path(FEDGE_CUDA_INCLUDE cuda_runtime_api.h ${cuda_places} PATH_SUFFIXES include)
    find_library(FEDGE_CUDART libcudart_static.a ${cuda_places} PATH_SUFFIXES lib64 lib)
    mark_as_advanced(FEDGE_CUDA_INCLUDE FEDGE_CUDART)
    fedge_gpu_architectures(FEDGE_CUDA_BUILT fedge_missing ${FEDGE_CUDA_ARCHITECTURES})
    if(fedge_missing)
      set(advice "give -DFEDGE_CUDA_ARCHITECTURES=ALL to build for other machines")
    else()
      message(STATUS "nvcc: ${FEDGE_NVCC}, for sm ${FEDGE_CUDA_BUILT}")
    endif()
    if(NOT FEDGE_CUDA_INCLUDE OR NOT FEDGE_CUDART)
      list(APPEND fedge_missing "CUDA's headers and libcudart_static.a")
    endif()
  else()
    set(fedge_missing nvcc)
  endif()
endif()
fedge_decide(CUDA "CUDA" "${advice}" ${fedge_missing})
if(FEDGE_HAVE_CUDA)
  add_library(fedge::cudart UNKNOWN IMPORTED)
  set_target_properties(fedge::cudart PROPERTIES
    IMPORTED_LOCATION "${FEDGE_CUDART}"
    INTERFACE_INCLUDE_DIRECTORIES "${FEDGE_CUDA_INCLUDE}"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;rt;${CMAKE_DL_LIBS}")
endif()

set(fedge_missing)
if(NOT FEDGE_MPI STREQUAL "OFF")
  # The header is enough to build: the library is looked for when programs run.
  find_path(FEDGE_MPI_INCLUDE mpi.h
    PATHS "/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openmpi/include" /usr/lib/openmpi/include)
  mark_as_advanced(FEDGE_MPI_INCLUDE)
  set(open_mpi)
  if(FEDGE_MPI_INCLUDE)
    file(STRINGS "${FEDGE_MPI_INCLUDE}/mpi.h" open_mpi REGEX "define OPEN_MPI 1")
  endif()
  if(open_mpi AND NOT CMAKE_CROSSCOMPILING)
    message(STATUS "Open MPI: ${FEDGE_MPI_INCLUDE}")
  else()
    set(fedge_missing "Open MPI's mpi.h")
  endif()
endif()
fedge_decide(MPI "MPI" "install libopenmpi-dev and openmpi-bin" ${fedge_missing})

# Debian's own Python, for which cmake/setup.sh installs the modules, before any other in the path.
if(EXISTS /usr/bin/python3)
  set(Python3_EXECUTABLE /usr/bin/python3 CACHE FILEPATH "Python for tests and man pages")
endif()
find_package(Python3 QUIET COMPONENTS Interpreter)

set(fedge_missing)
if(NOT FEDGE_HAVE_NETWORK)
  set(fedge_missing "FEDGE_NETWORK")
elseif(FEDGE_SANITIZE OR CMAKE_CROSSCOMPILING)
  set(fedge_missing "a build for this machine without sanitizers")
elseif(NOT FEDGE_PYTHON_PACKAGE STREQUAL "OFF")
  find_package(Python3 QUIET COMPONENTS Interpreter OPTIONAL_COMPONENTS Development.Module)
  if(NOT Python3_Development.Module_FOUND)
    list(APPEND fedge_missing "Python's headers")
  endif()
  execute_process(COMMAND "${Python3_EXECUTABLE}" -c "import cffi" RESULT_VARIABLE fedge_lacks_cffi ERROR_QUIET)
  if(NOT fedge_lacks_cffi STREQUAL "0")
    list(APPEND fedge_missing "Python's cffi")
  endif()
endif()
fedge_decide(PYTHON_PACKAGE "Python package" "run cmake/setup.sh --tests" ${fedge_missing})

set(fedge_missing)
if(NOT FEDGE_TESTS STREQUAL "OFF")
  fedge_import(cmocka HEADER cmocka.h LIBRARY cmocka)
  if(NOT Python3_FOUND)
    list(APPEND fedge_missing python3)
  endif()
endif()
fedge_decide(TESTS "Tests" "run cmake/setup.sh --tests" ${fedge_missing})
