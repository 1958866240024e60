#ifndef TESSERA_TOOLS_TESSERA_NUMBER_FLAGS_H_
#define TESSERA_TOOLS_TESSERA_NUMBER_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>

// What flags that are numbers take. Errors say what was wanted and found.

namespace tessera::tools {

// For CLI::Option::transform: a decimal number; CLI11 alone takes a leading 0
// for octal.
CLI::Validator WholeNumber(int64_t least, int64_t greatest);

// For CLI::Option::check. Unlike CLI::Range this refuses NaN.
CLI::Validator Within(double least, double greatest);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_TESSERA_NUMBER_FLAGS_H_
