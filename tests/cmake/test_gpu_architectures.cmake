# Which GPUs are compiled for, with an nvcc and an nvidia-smi that are made up:
# cmake -DROOT=… -DFOLDER=… -P test_gpu_architectures.cmake
cmake_minimum_required(VERSION 3.25)
include("${ROOT}/cmake/GpuArchitectures.cmake")

# program(name text status): a program in FOLDER that prints text.
function(program name text status)
  file(WRITE "${FOLDER}/${name}" "#!/bin/sh\nprintf '${text}'\nexit ${status}\n")
  file(CHMOD "${FOLDER}/${name}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endfunction()

# expect(known missing WANTED...)
function(expect known missing)
  fedge_gpu_architectures(is_known is_missing ${ARGN})
  if(NOT "${is_known}" STREQUAL "${known}" OR NOT "${is_missing}" STREQUAL "${missing}")
    message(SEND_ERROR "${ARGN}: expected '${known}' and '${missing}', not '${is_known}' and '${is_missing}'")
  endif()
endfunction()

file(REMOVE_RECURSE "${FOLDER}")
set(ENV{PATH} "${FOLDER}")
set(FEDGE_NVCC "${FOLDER}/nvcc")
program(nvcc "sm_75\\nsm_80\\nsm_89\\nsm_90\\nsm_100\\n" 0)

# A machine without NVIDIA's driver, and one whose driver finds no GPU.
expect("" "a GPU" NATIVE)
program(nvidia-smi "No devices were found\\n" 6)
expect("" "a GPU" NATIVE)
expect("75;80;89;90;100" "" ALL)
expect("90" "" NATIVE 90)

# Two GPUs of one kind and one of another; one that this nvcc is too old for.
program(nvidia-smi "9.0\\n9.0\\n8.0\\n" 0)
expect("80;90" "" NATIVE)
expect("75;80;90" "" 75 NATIVE 90)
program(nvidia-smi "12.1\\n" 0)
expect("" "an nvcc that knows a GPU of compute capability 121" NATIVE)
expect("" "an nvcc that knows a GPU of compute capability 35, 121" 35 NATIVE)
