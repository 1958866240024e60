#ifndef TESSERA_BASE_STATUS_MACROS_H_
#define TESSERA_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function if `expr`, an absl::Status, is an error.
// `expr` may hold a lambda that uses the macro itself: names are unique.
#define TESSERA_RETURN_IF_ERROR(expr)                                          \
  TESSERA_RETURN_IF_ERROR_IMPL_(TESSERA_CONCAT_(tessera_status_, __COUNTER__), \
                                expr)

#define TESSERA_RETURN_IF_ERROR_IMPL_(status, expr)                  \
  do {                                                               \
    if (::absl::Status status = (expr); !status.ok()) [[unlikely]] { \
      return status;                                                 \
    }                                                                \
  } while (false)

// Assigns the value of `expr`, an absl::StatusOr, to `lhs`, or returns its
// error from the enclosing function. `lhs` may be a declaration:
//
//   TESSERA_ASSIGN_OR_RETURN(DeviceMesh mesh, DeviceMesh::Parse("dp=2,tp=4"));
#define TESSERA_ASSIGN_OR_RETURN(lhs, expr) \
  TESSERA_ASSIGN_OR_RETURN_IMPL_(           \
      TESSERA_CONCAT_(tessera_statusor_, __COUNTER__), lhs, expr)

#define TESSERA_ASSIGN_OR_RETURN_IMPL_(result, lhs, expr) \
  auto result = (expr);                                   \
  if (!result.ok()) [[unlikely]] {                        \
    return std::move(result).status();                    \
  }                                                       \
  lhs = *std::move(result)

#define TESSERA_CONCAT_(a, b) TESSERA_CONCAT_IMPL_(a, b)
#define TESSERA_CONCAT_IMPL_(a, b) a##b

#endif  // TESSERA_BASE_STATUS_MACROS_H_
