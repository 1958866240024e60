#ifndef TESSERA_TESTS_STATUS_MATCHERS_H_
#define TESSERA_TESTS_STATUS_MATCHERS_H_

#include "tessera/testing/status_matchers.h"

// The macros of the installed header by their short names.
#define EXPECT_OK(expr) TESSERA_EXPECT_OK(expr)
#define ASSERT_OK(expr) TESSERA_ASSERT_OK(expr)
#define ASSERT_OK_AND_ASSIGN(lhs, expr) TESSERA_ASSERT_OK_AND_ASSIGN(lhs, expr)

#endif  // TESSERA_TESTS_STATUS_MATCHERS_H_
