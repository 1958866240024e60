#ifndef TESSERA_TESTS_FUZZ_FUZZED_H_
#define TESSERA_TESTS_FUZZ_FUZZED_H_

#include <cstddef>
#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera::testing {

// What every parser keeps to: whatever it takes, its own text gives the same
// value and text again; whatever it does not take is InvalidArgument, with a
// message that may show it, but not many times. Aborts otherwise.
// `parse` gives a StatusOr, `print` a text.
template <typename Parse, typename Print>
void CheckParser(const std::string& text, Parse parse, Print print) {
  const auto fail = [&](const std::string& what) {
    std::cerr << what << "\n";
    std::abort();
  };
  const auto value = parse(text);
  if (!value.ok()) {
    if (!absl::IsInvalidArgument(value.status())) {
      fail("another error: " + value.status().ToString());
    }
    const size_t most = 1000 + 2 * text.size();
    if (value.status().message().size() > most) fail("a long error");
    return;
  }
  const std::string printed = print(*value);
  const auto again = parse(printed);
  if (!again.ok()) fail(printed + ": " + again.status().ToString());
  if (!(*again == *value)) fail(printed + ": another value");
  if (print(*again) != printed) fail(printed + ": another text");
}

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_FUZZ_FUZZED_H_
