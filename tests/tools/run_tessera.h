#ifndef TESSERA_TESTS_TOOLS_RUN_TESSERA_H_
#define TESSERA_TESTS_TOOLS_RUN_TESSERA_H_

#include <string>

#include "tests/run_program.h"

namespace tessera::testing {

// Runs the program with these arguments, as a shell reads them; keeps both
// stdout and stderr.
inline ProgramResult RunTessera(const std::string& arguments) {
  return RunProgram("'" TESSERA_PROGRAM "' " + arguments + " 2>&1");
}

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_TOOLS_RUN_TESSERA_H_
