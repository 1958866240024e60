#include "tools/tessera/number_flags.h"

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tessera::tools {
namespace {

std::string Complaint(const std::string& wanted, const std::string& found) {
  return absl::StrCat("want ", wanted, ", found '", found, "'");
}

}  // namespace

CLI::Validator WholeNumber(int64_t least, int64_t greatest) {
  const std::string wanted =
      absl::StrCat("a whole number from ", least, " to ", greatest);
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        int64_t number = 0;
        if (!absl::SimpleAtoi(text, &number) || number < least ||
            number > greatest) {
          return Complaint(wanted, text);
        }
        text = absl::StrCat(number);
        return "";
      },
      wanted);
}

CLI::Validator Within(double least, double greatest) {
  const std::string wanted =
      absl::StrCat("a number from ", least, " to ", greatest);
  return CLI::Validator(
      [=](const std::string& text) -> std::string {
        double number = 0;
        const bool is_within = absl::SimpleAtod(text, &number) &&
                               number >= least && number <= greatest;
        return is_within ? "" : Complaint(wanted, text);
      },
      wanted);
}

}  // namespace tessera::tools
