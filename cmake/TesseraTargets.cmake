# tessera_library and tessera_test: the two kinds of target this project has.

# Headers are included as "tessera/<folder>/<file>.h", in the build tree as
# after installation. Links under the build folder make it so.
set(TESSERA_INCLUDE_ROOT "${PROJECT_BINARY_DIR}/include")
file(MAKE_DIRECTORY "${TESSERA_INCLUDE_ROOT}/tessera")
foreach(folder base tensor mesh placement device comm redistribute dbuffer fsdp
               testing sweep)
  file(CREATE_LINK "${PROJECT_SOURCE_DIR}/${folder}"
    "${TESSERA_INCLUDE_ROOT}/tessera/${folder}" SYMBOLIC)
endforeach()

add_library(tessera_flags INTERFACE)
target_compile_features(tessera_flags INTERFACE cxx_std_20)
set(cxx_flags -Wall -Wextra -Wshadow
  # The gradient arithmetic is defined as two roundings, product and sum.
  -ffp-contract=off
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  # g++ 12 takes the unused inline elements of a moved absl::InlinedVector for
  # uninitialized data in use.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
  $<$<BOOL:${TESSERA_WERROR}>:-Werror>)
# CMake 3.25 knows no language standard of nvcc 13.
set(cuda_flags -std=c++20 --expt-relaxed-constexpr --fmad=false
  $<$<BOOL:${TESSERA_WERROR}>:--Werror=all-warnings>)
target_compile_options(tessera_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${cxx_flags}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_flags}>")
# For the sources of tests. Unoptimized, they compile twice as fast; what they
# test is optimized as the build says.
add_library(tessera_test_flags INTERFACE)
target_link_libraries(tessera_test_flags INTERFACE tessera_flags)
target_compile_options(tessera_test_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-O0>)
if(TESSERA_SANITIZE)
  add_compile_options(-fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TESSERA_SANITIZE})
endif()

# tessera_library(<name> SOURCES a.cc ... HEADERS a.h ... DEPS target ...
#                 [PRIVATE_DEPS target ...] [COMPONENT name])
#
# Makes the library tessera_<name> with the alias tessera::<name>, and installs
# it: as part of an optional component of the package where one is named.
# Without SOURCES it is header-only. Headers, those that are installed, are
# named relative to the folder's place in the source tree, e.g. cpu/cpu_device.h
# in device/CMakeLists.txt.
function(tessera_library name)
  cmake_parse_arguments(ARG "" "COMPONENT" "SOURCES;HEADERS;DEPS;PRIVATE_DEPS"
    ${ARGN})
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}"
    "${CMAKE_CURRENT_SOURCE_DIR}")
  list(TRANSFORM ARG_HEADERS PREPEND
    "${TESSERA_INCLUDE_ROOT}/tessera/${folder}/")
  if(ARG_SOURCES)
    set(scope PUBLIC)
    add_library(tessera_${name} ${ARG_SOURCES})
    target_link_libraries(tessera_${name}
      PUBLIC ${ARG_DEPS}
      PRIVATE $<BUILD_INTERFACE:tessera_flags> ${ARG_PRIVATE_DEPS})
  else()
    set(scope INTERFACE)
    add_library(tessera_${name} INTERFACE)
    target_link_libraries(tessera_${name} INTERFACE ${ARG_DEPS})
  endif()
  target_compile_features(tessera_${name} ${scope} cxx_std_20)
  target_sources(tessera_${name} ${scope}
    FILE_SET HEADERS BASE_DIRS "${TESSERA_INCLUDE_ROOT}"
    FILES ${ARG_HEADERS})
  set_target_properties(tessera_${name} PROPERTIES EXPORT_NAME ${name})
  add_library(tessera::${name} ALIAS tessera_${name})
  tessera_install(tessera_${name} ${ARG_COMPONENT})
endfunction()

# tessera_page_code(<page> <variable> [ALL])
#
# Sets the variable to the first block of C++ in a page of Markdown, or to all
# of them, joined. Where the page changes, CMake runs again.
function(tessera_page_code page variable)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${page}")
  file(READ "${page}" text)
  set(code "")
  while(text MATCHES "```cpp\n([^`]*)```(.*)")
    string(APPEND code "${CMAKE_MATCH_1}")
    set(text "${CMAKE_MATCH_2}")
    if(NOT "ALL" IN_LIST ARGN)
      break()
    endif()
  endwhile()
  if(code STREQUAL "")
    message(FATAL_ERROR "${page} has no block of C++")
  endif()
  set(${variable} "${code}" PARENT_SCOPE)
endfunction()

# tessera_test(<name> SOURCES a_test.cc ... DEPS target ...
#              [LABEL unit|property|slow|mpi] [TIMEOUT seconds]
#              [PROCESSORS cores] [ONE_THREAD])
#
# Under a sanitizer a test has three times as long.
#
# Registers every test case of the program with ctest. One with ONE_THREAD has no
# other, or lets only one at a time do something, so that ThreadSanitizer would
# find nothing in it: not built for that.
function(tessera_test name)
  cmake_parse_arguments(ARG "ONE_THREAD" "LABEL;TIMEOUT;PROCESSORS"
    "SOURCES;DEPS" ${ARGN})
  if(ARG_ONE_THREAD AND TESSERA_SANITIZE MATCHES "thread")
    return()
  endif()
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(NOT ARG_PROCESSORS)
    set(ARG_PROCESSORS 1)
  endif()
  if(TESSERA_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 3")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE
    tessera_test_flags ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES
    PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT}
      PROCESSORS ${ARG_PROCESSORS})
endfunction()

# tessera_mpi_test(<program> <ranks> [ARGS argument ...])
#
# Registers the program, run by so many processes, with ctest: it passes where
# all of them do. There may be more of them than cores.
function(tessera_mpi_test program ranks)
  cmake_parse_arguments(ARG "" "" "ARGS" ${ARGN})
  set(name ${program}_${ranks})
  set(flags --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1)
  if("${MPI_CXX_LIBRARIES}" MATCHES mpich)
    set(flags "")
  endif()
  add_test(NAME ${name}
    COMMAND "${MPIEXEC_EXECUTABLE}" ${flags} ${MPIEXEC_NUMPROC_FLAG} ${ranks}
      "$<TARGET_FILE:${program}>" ${ARG_ARGS})
  set_tests_properties(${name} PROPERTIES LABELS mpi TIMEOUT 120 PROCESSORS 2)
endfunction()
