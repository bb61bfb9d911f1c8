# Headers for programs outside of this tree, made of those inside it, and the names that they declare.

# Appends a header of the tree to fedge_flat_text, with the headers of the tree that it includes in
# their places, each once; what it includes of the system's goes to fedge_flat_system.
function(fedge_flatten header)
  get_property(seen GLOBAL PROPERTY fedge_flat_seen)
  if(header IN_LIST seen)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY fedge_flat_seen "${header}")
  set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    "${PROJECT_SOURCE_DIR}/${header}")
  file(READ "${PROJECT_SOURCE_DIR}/${header}" text)
  while(text MATCHES "\n#include ([<\"])([^>\"\n]+)[>\"]")
    set(line "${CMAKE_MATCH_0}")
    set(bracket "${CMAKE_MATCH_1}")
    set(included "${CMAKE_MATCH_2}")
    string(FIND "${text}" "${line}" begin)
    string(LENGTH "${line}" end)
    math(EXPR end "${begin} + ${end}")
    string(SUBSTRING "${text}" 0 ${begin} before)
    string(SUBSTRING "${text}" ${end} -1 text)
    set_property(GLOBAL APPEND_STRING PROPERTY fedge_flat_text "${before}\n")
    if(bracket STREQUAL "<")
      set_property(GLOBAL APPEND PROPERTY fedge_flat_system "#include <${included}>")
    else()
      fedge_flatten("${included}")
    endif()
  endwhile()
  set_property(GLOBAL APPEND_STRING PROPERTY fedge_flat_text "${text}")
endfunction()

# fedge_public_header(NAME from HEADER): makes fedge/NAME in FEDGE_PUBLIC_INCLUDE, which needs no other
# header of fedge's and serves C++ too; both can be included, as each part keeps its guard. The functions
# that it declares go to [names].
set(FEDGE_PUBLIC_INCLUDE "${CMAKE_BINARY_DIR}/include")
function(fedge_public_header name from header names)
  foreach(property text seen system)
    set_property(GLOBAL PROPERTY fedge_flat_${property} "")
  endforeach()
  fedge_flatten("${header}")
  get_property(text GLOBAL PROPERTY fedge_flat_text)
  get_property(system GLOBAL PROPERTY fedge_flat_system)
  list(REMOVE_DUPLICATES system)
  list(SORT system)
  list(JOIN system "\n" system)
  # The library was compiled with room for so many layers.
  set(built_with)
  if(FEDGE_MAX_LAYERS)
    set(built_with "#define FEDGE_MAX_LAYERS ${FEDGE_MAX_LAYERS} /* as the library was built */\n\n")
  endif()
  if(NOT text MATCHES "\n#ifndef FEDGE_[A-Z0-9_]+_H\n#define FEDGE_[A-Z0-9_]+_H\n")
    message(FATAL_ERROR "${header} has no include guard")
  endif()
  string(REPLACE "${CMAKE_MATCH_0}" "${CMAKE_MATCH_0}
${system}

${built_with}#ifdef __cplusplus
extern \"C\" {
#endif

" text "${text}")
  string(FIND "${text}" "#endif" end REVERSE)
  string(SUBSTRING "${text}" 0 ${end} text)
  string(APPEND text "#ifdef __cplusplus\n}\n#endif\n\n#endif\n")
  string(REGEX REPLACE "\n\n\n+" "\n\n" text "${text}")
  file(CONFIGURE OUTPUT "${FEDGE_PUBLIC_INCLUDE}/fedge/${name}" CONTENT "@text@" @ONLY)

  string(REGEX REPLACE "/\\*([^*]|\\*+[^*/])*\\*+/" "" text "${text}")
  string(REGEX MATCHALL "\n[A-Za-z][^\n;{}()#]*[(]" declarations "${text}")
  list(FILTER declarations EXCLUDE REGEX "^\n(static|typedef) ")
  list(FILTER declarations INCLUDE REGEX "[ *]fedge_[a-z0-9_]+[(]$")
  list(TRANSFORM declarations REPLACE "^.*[ *](fedge_[a-z0-9_]+)[(]$" "\\1")
  set(${names} ${declarations} PARENT_SCOPE)
endfunction()
