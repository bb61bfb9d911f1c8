# Which GPUs the CUDA code is compiled for.

# What a release is for: every generation that CUDA 13 knows; an older nvcc leaves out those it does not know, as compute capabilities.
set(FEDGE_CUDA_ALL 75 80 86 89 90 100 110 120)

# fedge_gpu_architectures(known missing WANTED...): sets [known] to those of WANTED that FEDGE_NVCC can compile for,
# sorted, and [missing] to what stands in the way where there is none. WANTED are compute capabilities, ALL,
# and NATIVE, which are those of this machine's GPUs.
function(fedge_gpu_architectures out_known out_missing)
  set(wanted)
  foreach(name IN LISTS ARGN)
    if(name STREQUAL "ALL")
      list(APPEND wanted ${FEDGE_CUDA_ALL})
    elseif(name STREQUAL "NATIVE")
      execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
        OUTPUT_VARIABLE capabilities ERROR_QUIET RESULT_VARIABLE failed)
      if(failed EQUAL 0)
        string(REGEX MATCHALL "[0-9]+\\.[0-9]" capabilities "${capabilities}")
        list(TRANSFORM capabilities REPLACE "\\." "")
        list(APPEND wanted ${capabilities})
      endif()
    else()
      list(APPEND wanted ${name})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES wanted)
  list(SORT wanted COMPARE NATURAL)

  execute_process(COMMAND "${FEDGE_NVCC}" --list-gpu-code OUTPUT_VARIABLE nvcc_knows ERROR_QUIET)
  string(REPLACE "\n" ";" nvcc_knows "${nvcc_knows}")
  set(known)
  foreach(architecture IN LISTS wanted)
    if("sm_${architecture}" IN_LIST nvcc_knows)
      list(APPEND known ${architecture})
    endif()
  endforeach()
  set(missing)
  if(NOT wanted)
    set(missing "a GPU")
  elseif(NOT known)
    list(JOIN wanted ", " wanted)
    set(missing "an nvcc that knows a GPU of compute capability ${wanted}")
  endif()
  set(${out_known} "${known}" PARENT_SCOPE)
  set(${out_missing} "${missing}" PARENT_SCOPE)
endfunction()
