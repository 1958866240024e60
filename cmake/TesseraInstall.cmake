# What `cmake --install` puts where, and the package Tessera that it makes.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(TESSERA_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/Tessera")

# tessera_install(<target> [<component>])
#
# Installs a target and its headers, and exports it under tessera:: as part of
# the package, or of a component that find_package has to be asked for.
function(tessera_install target)
  if(NOT TESSERA_INSTALL)
    return()
  endif()
  get_target_property(header_sets ${target} INTERFACE_HEADER_SETS)
  if(header_sets)
    set(headers FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  endif()
  install(TARGETS ${target} EXPORT Tessera${ARGN}Targets
    RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}"
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    ${headers})
  set_property(GLOBAL APPEND PROPERTY TESSERA_EXPORTS Tessera${ARGN}Targets)
endfunction()

# Installs the files that find_package(Tessera) reads.
function(tessera_install_package)
  get_property(exports GLOBAL PROPERTY TESSERA_EXPORTS)
  list(REMOVE_DUPLICATES exports)
  foreach(export IN LISTS exports)
    install(EXPORT ${export} NAMESPACE tessera::
      DESTINATION "${TESSERA_PACKAGE_DIR}")
  endforeach()

  configure_package_config_file(
    "${PROJECT_SOURCE_DIR}/cmake/TesseraConfig.cmake.in"
    "${PROJECT_BINARY_DIR}/TesseraConfig.cmake"
    INSTALL_DESTINATION "${TESSERA_PACKAGE_DIR}"
    NO_SET_AND_CHECK_MACRO)
  # Before 1.0 a new minor version may break what used the one before.
  write_basic_package_version_file(
    "${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion)
  install(
    FILES "${PROJECT_BINARY_DIR}/TesseraConfig.cmake"
          "${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake"
          "${PROJECT_SOURCE_DIR}/cmake/FindNCCL.cmake"
    DESTINATION "${TESSERA_PACKAGE_DIR}")
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/NOTICE"
    DESTINATION "${CMAKE_INSTALL_DOCDIR}")
endfunction()
