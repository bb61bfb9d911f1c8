# What "cmake --install" puts where: programs with their man pages, the libraries libfedge_client and
# libfedge_train with headers, pkg-config files and a CMake package, and the documents.
# docs/guides/install.md describes it.

include(CMakePackageConfigHelpers)

# --- programs and documents ----------------------------------------------------------------------

# Man pages are what the programs say themselves, so they must run here.
get_property(programs GLOBAL PROPERTY fedge_installed_programs)
if(Python3_FOUND AND NOT CMAKE_CROSSCOMPILING)
  set(pages)
  foreach(program IN LISTS programs)
    get_target_property(commands ${program} fedge_commands)
    set(page "${CMAKE_BINARY_DIR}/man/${program}.1")
    add_custom_command(OUTPUT "${page}"
      COMMAND "${Python3_EXECUTABLE}" -B "${PROJECT_SOURCE_DIR}/cmake/man_page.py" "$<TARGET_FILE:${program}>"
              "${page}" ${PROJECT_VERSION} ${commands}
      DEPENDS ${program} cmake/man_page.py VERBATIM COMMENT "Man page of ${program}")
    list(APPEND pages "${page}")
  endforeach()
  file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/man")
  add_custom_target(man_pages ALL DEPENDS ${pages})
  install(FILES ${pages} DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
else()
  message(STATUS "Man pages: left out (they need Python, and programs that run on this machine)")
endif()

# What programs run for themselves.
if(FEDGE_HAVE_AGGREGATOR)
  install(PROGRAMS aggregator/program/start_ranks.sh DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/fedge"
    RENAME start-ranks)
endif()

# As in the tree, so that links between them lead somewhere.
install(FILES README.md LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY docs DESTINATION "${CMAKE_INSTALL_DOCDIR}" PATTERN systemd EXCLUDE)
install(DIRECTORY examples DESTINATION "${CMAKE_INSTALL_DOCDIR}"
  PATTERN examples/CMakeLists.txt EXCLUDE PATTERN quickstart.sh EXCLUDE PATTERN __pycache__ EXCLUDE)
if(FEDGE_HAVE_NETWORK)
  # Their ExecStart has the prefix of the installation, which may be given as late as that.
  install(CODE "
    set(bindir \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
    foreach(unit fedge-aggregator fedge-client)
      configure_file(\"${PROJECT_SOURCE_DIR}/docs/systemd/\${unit}.service.in\"
        \"${CMAKE_BINARY_DIR}/systemd/\${unit}.service\" @ONLY)
    endforeach()")
  install(DIRECTORY "${CMAKE_BINARY_DIR}/systemd" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
  # The licences of what is inside the programs and libfedge_client.
  install(FILES "${FEDGE_DEPS}/src/mbedtls/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}"
    RENAME LICENSE.mbedtls OPTIONAL)
  install(FILES "${FEDGE_DEPS}/src/libwebsockets/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}"
    RENAME LICENSE.libwebsockets OPTIONAL)
endif()
# --- libraries -----------------------------------------------------------------------------------

# fedge_gather(TARGET-OR-LIBRARY): what linking it takes, in global properties: fedge_archives (static
# libraries of fedge and of FEDGE_DEPS, which users do not have), fedge_system (names of the others),
# fedge_threads and fedge_wraps (the linker's options --wrap).
function(fedge_gather library)
  get_property(seen GLOBAL PROPERTY fedge_gathered)
  if(library IN_LIST seen)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY fedge_gathered "${library}")
  set(file "${library}")
  if(TARGET ${library})
    get_target_property(type ${library} TYPE)
    get_target_property(imported ${library} IMPORTED)
    get_target_property(file ${library} IMPORTED_LOCATION)
    get_target_property(needed ${library} INTERFACE_LINK_LIBRARIES)
    get_target_property(options ${library} INTERFACE_LINK_OPTIONS)
    list(FILTER options INCLUDE REGEX "--wrap=")
    list(TRANSFORM options REPLACE "^LINKER:" "-Wl,")
    set_property(GLOBAL APPEND PROPERTY fedge_wraps ${options})
    if(type STREQUAL "STATIC_LIBRARY" AND NOT imported)
      set_property(GLOBAL APPEND PROPERTY fedge_archives "$<TARGET_FILE:${library}>")
      set_property(GLOBAL APPEND PROPERTY fedge_archive_targets ${library})
    endif()
    foreach(next IN LISTS needed)
      if(next)
        fedge_gather(${next})
      endif()
    endforeach()
  endif()
  cmake_path(IS_PREFIX FEDGE_DEPS "${file}" NORMALIZE bundled)
  if(library STREQUAL "Threads::Threads")
    set_property(GLOBAL PROPERTY fedge_threads Threads::Threads)
  elseif(NOT file)
    return()
  elseif(bundled)
    set_property(GLOBAL APPEND PROPERTY fedge_archives "${file}")
  else()
    cmake_path(GET file STEM name)
    string(REGEX REPLACE "^lib" "" name "${name}")
    set_property(GLOBAL APPEND PROPERTY fedge_system "${name}")
  endif()
endfunction()

# fedge_install_library(NAME ABOUT text LIBS target... NAMES function...): libfedge_NAME of all that LIBS
# need and users do not have, static, and shared where programs are not linked statically. All of it is
# one object, in which what --wrap redirects is resolved; only the functions NAMES can be seen from outside,
# so that another copy of mbedTLS, or of anything else, may be in the same program.
function(fedge_install_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "WEAK" "ABOUT" "LIBS;NAMES")
  foreach(property gathered archives archive_targets system threads wraps)
    set_property(GLOBAL PROPERTY fedge_${property})
  endforeach()
  foreach(library IN LISTS arg_LIBS)
    fedge_gather(${library})
  endforeach()
  foreach(property archives archive_targets system threads wraps)
    get_property(${property} GLOBAL PROPERTY fedge_${property})
  endforeach()
  set(place "${CMAKE_BINARY_DIR}/lib")
  list(JOIN arg_NAMES "\n" lines)
  file(CONFIGURE OUTPUT "${place}/fedge_${name}.names" CONTENT "@lines@\n" @ONLY)
  list(TRANSFORM arg_NAMES PREPEND "-Wl,-u," OUTPUT_VARIABLE roots)
  list(JOIN roots "\n" lines)
  file(CONFIGURE OUTPUT "${place}/fedge_${name}.roots" CONTENT "@lines@\n" @ONLY)
  separate_arguments(flags NATIVE_COMMAND "${CMAKE_C_FLAGS}")
  set(object "${place}/fedge_${name}.o")
  add_custom_command(OUTPUT "${object}"
    COMMAND "${CMAKE_C_COMPILER}" ${flags} -r -nostdlib -o "${object}.whole" -Wl,--gc-sections
            "@${place}/fedge_${name}.roots" ${wraps} -Wl,--start-group ${archives} -Wl,--end-group
    COMMAND "${CMAKE_OBJCOPY}" --strip-unneeded "--keep-global-symbols=${place}/fedge_${name}.names"
            "$<$<BOOL:${arg_WEAK}>:--weaken-symbols=${place}/fedge_${name}.names>" "${object}.whole" "${object}"
    COMMAND "${CMAKE_COMMAND}" -E rm "${object}.whole"
    DEPENDS ${archives} ${archive_targets} "${place}/fedge_${name}.names" "${place}/fedge_${name}.roots"
    COMMAND_EXPAND_LISTS VERBATIM COMMENT "One object of libfedge_${name}")
  set_source_files_properties("${object}" PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  # Of one target that both libraries wait for: make would run the command for each of them at once.
  add_custom_target(fedge_${name}_object DEPENDS "${object}")

  set(kinds STATIC)
  if(NOT FEDGE_STATIC AND NOT FEDGE_MCU)
    list(APPEND kinds SHARED)
  endif()
  foreach(kind IN LISTS kinds)
    string(TOLOWER ${kind} suffix)
    set(target fedge_${name}_${suffix})
    add_library(${target} ${kind} "${object}")
    add_dependencies(${target} fedge_${name}_object)
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C
      OUTPUT_NAME fedge_${name} EXPORT_NAME ${name}_${suffix}
      ARCHIVE_OUTPUT_DIRECTORY "${place}" LIBRARY_OUTPUT_DIRECTORY "${place}"
      VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    if(kind STREQUAL "STATIC")
      target_link_libraries(${target} INTERFACE ${system} ${threads})
    else()
      target_link_libraries(${target} PRIVATE ${system} ${threads})
      target_link_options(${target} PRIVATE
        -Wl,-Bsymbolic -Wl,-z,defs -Wl,--as-needed -Wl,-z,relro -Wl,-z,now)
    endif()
    set_property(GLOBAL APPEND PROPERTY fedge_installed_libraries ${target})
    install(TARGETS ${target} EXPORT fedge
      ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
      INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  endforeach()
  install(FILES "${FEDGE_PUBLIC_INCLUDE}/fedge/${name}.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/fedge")

  # pkg-config: fedge-NAME, and fedge-NAME-static for the static library where there are both.
  list(TRANSFORM system PREPEND "-l")
  list(JOIN system " " system)
  if(threads)
    string(APPEND system " -pthread")
  endif()
  set(about "${arg_ABOUT}")
  set(pc_folder "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
  set(up "/")
  cmake_path(RELATIVE_PATH up BASE_DIRECTORY "/${pc_folder}")
  set(pc_files "${place}/fedge-${name}.pc")
  set(pc_name fedge-${name})
  set(pc_libs "-L\${libdir} -lfedge_${name}")
  if("SHARED" IN_LIST kinds)
    set(pc_private "${system}")
  else()
    string(APPEND pc_libs " ${system}")
  endif()
  configure_file("${PROJECT_SOURCE_DIR}/cmake/fedge.pc.in" "${place}/fedge-${name}.pc" @ONLY)
  if("SHARED" IN_LIST kinds)
    set(pc_name fedge-${name}-static)
    set(pc_libs "\${libdir}/libfedge_${name}.a ${system}")
    set(pc_private)
    configure_file("${PROJECT_SOURCE_DIR}/cmake/fedge.pc.in" "${place}/fedge-${name}-static.pc" @ONLY)
    list(APPEND pc_files "${place}/fedge-${name}-static.pc")
  endif()
  install(FILES ${pc_files} DESTINATION "${pc_folder}")
endfunction()

# Strategies and metrics of one's own (fedge-aggregator --strategy-plugin) need a header and no library.
if(NOT FEDGE_MCU)
  set(place "${CMAKE_BINARY_DIR}/lib")
  set(up "/")
  cmake_path(RELATIVE_PATH up BASE_DIRECTORY "/${CMAKE_INSTALL_LIBDIR}/pkgconfig")
  set(pc_name fedge-strategy)
  set(about "A federated learning strategy or metrics of one's own, as a shared object")
  set(pc_libs)
  set(pc_private)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/fedge.pc.in" "${place}/fedge-strategy.pc" @ONLY)
  install(FILES "${FEDGE_PUBLIC_INCLUDE}/fedge/strategy.h" "${FEDGE_PUBLIC_INCLUDE}/fedge/metric.h"
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/fedge")
  install(FILES "${place}/fedge-strategy.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endif()

# A sanitizer's libraries would need its compiler's options wherever they are linked.
if(NOT FEDGE_SANITIZE)
  fedge_install_library(train WEAK
    ABOUT "Training for federated learning on devices: layers, losses, optimizers, without malloc"
    LIBS fedge_train NAMES ${FEDGE_TRAIN_NAMES})
  if(FEDGE_HAVE_NETWORK)
    # It has the other library inside, for trainers that are made of it.
    fedge_install_library(client
      ABOUT "Taking part in federated learning with a trainer of one's own"
      LIBS fedge_client NAMES ${FEDGE_CLIENT_NAMES} ${FEDGE_TRAIN_NAMES})
  endif()

  set(package "${CMAKE_INSTALL_LIBDIR}/cmake/fedge")
  install(EXPORT fedge NAMESPACE fedge:: FILE fedge-targets.cmake DESTINATION "${package}")
  configure_package_config_file(cmake/fedge-config.cmake.in "${CMAKE_BINARY_DIR}/lib/fedge-config.cmake"
    INSTALL_DESTINATION "${package}" NO_SET_AND_CHECK_MACRO)
  write_basic_package_version_file("${CMAKE_BINARY_DIR}/lib/fedge-config-version.cmake"
    COMPATIBILITY SameMinorVersion)
  install(FILES "${CMAKE_BINARY_DIR}/lib/fedge-config.cmake" "${CMAKE_BINARY_DIR}/lib/fedge-config-version.cmake"
    DESTINATION "${package}")
endif()

# --- what must have been built -------------------------------------------------------------------

# A build may have been of some targets only, as the quickstart's is. CMakeLists.txt has the rule that reads this
# before all others, so that nothing is installed then.
get_property(libraries GLOBAL PROPERTY fedge_installed_libraries)
set(needed ${pages})
foreach(target IN LISTS programs libraries)
  list(APPEND needed "$<TARGET_FILE:${target}>")
endforeach()
list(JOIN needed "\"\n  \"" needed)
file(GENERATE OUTPUT "${CMAKE_BINARY_DIR}/built.cmake" CONTENT "set(missing)
foreach(file IN ITEMS
  \"${needed}\")
  if(NOT EXISTS \"\${file}\")
    cmake_path(GET file FILENAME name)
    list(APPEND missing \"\${name}\")
  endif()
endforeach()
if(missing)
  list(JOIN missing \", \" missing)
  message(FATAL_ERROR \"not built yet: \${missing}. Nothing was installed. Build all of it first: \"
    \"cmake --build ${CMAKE_BINARY_DIR}\")
endif()
")
