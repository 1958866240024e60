# Finds NCCL, which brings no CMake package of its own, beside the CUDA toolkit
# or under NCCL_ROOT:
#
#   NCCL::nccl     the library
#   NCCL_VERSION   2.28.9, say
#
# REQUIRES: find_package(CUDAToolkit) before.
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(NCCL_LIBRARY nccl
  HINTS ${CUDAToolkit_LIBRARY_DIR} "${CUDAToolkit_LIBRARY_ROOT}/lib")

if(NCCL_INCLUDE_DIR)
  set(NCCL_VERSION "")
  file(READ "${NCCL_INCLUDE_DIR}/nccl.h" header)
  foreach(part MAJOR MINOR PATCH)
    string(REGEX MATCH "#define NCCL_${part} ([0-9]+)" match "${header}")
    list(APPEND NCCL_VERSION "${CMAKE_MATCH_1}")
  endforeach()
  list(JOIN NCCL_VERSION "." NCCL_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL
  REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR
  VERSION_VAR NCCL_VERSION)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
  add_library(NCCL::nccl UNKNOWN IMPORTED)
  set_target_properties(NCCL::nccl PROPERTIES
    IMPORTED_LOCATION "${NCCL_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES CUDA::cudart)
endif()
