# Installs the build tree BUILD of the source tree SOURCE to a folder, moves
# that to PREFIX, and checks that nothing in the package knows where it was.
set(staging "${PREFIX}.staging")
file(REMOVE_RECURSE "${PREFIX}" "${staging}")
execute_process(
  COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${staging}"
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(RENAME "${staging}" "${PREFIX}")

file(GLOB_RECURSE package_files "${PREFIX}/*.cmake")
if(NOT package_files)
  message(FATAL_ERROR "no package was installed")
endif()
foreach(file IN LISTS package_files)
  file(READ "${file}" text)
  foreach(folder IN ITEMS "${SOURCE}" "${BUILD}" "${staging}")
    string(FIND "${text}" "${folder}" place)
    if(NOT place EQUAL -1)
      message(FATAL_ERROR "${file} names ${folder}")
    endif()
  endforeach()
endforeach()
