// The tables of docs/placements.md are what ValidatePlacements says.

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "tessera/fsdp/placements.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

// All lists of R, Flat and P on `num_axes` axes.
std::vector<BufferPlacements> AllLists(int num_axes) {
  std::vector<BufferPlacements> lists = {{}};
  for (int i = 0; i < num_axes; ++i) {
    std::vector<BufferPlacements> longer;
    for (const BufferPlacements& list : lists) {
      for (const BufferPlacement& placement :
           {BufferPlacement::Replicate(), BufferPlacement::Flat(),
            BufferPlacement::Partial()}) {
        longer.push_back(list);
        longer.back().push_back(placement);
      }
    }
    lists = std::move(longer);
  }
  return lists;
}

std::vector<UnitPlacements> AllTriples(int num_axes) {
  std::vector<UnitPlacements> triples;
  const std::vector<BufferPlacements> lists = AllLists(num_axes);
  for (const BufferPlacements& parameter : lists) {
    for (const BufferPlacements& gradient : lists) {
      for (const BufferPlacements& optimizer : lists) {
        triples.push_back({parameter, gradient, optimizer});
      }
    }
  }
  return triples;
}

// "hsdp", or nothing for a triple without a name.
std::string NameOf(const UnitPlacements& triple) {
  Names names;
  for (absl::string_view name : StrategyNames()) {
    const int num_axes = static_cast<int>(triple.parameter.size());
    if (*PlacementsFor(name, num_axes) == triple) names.emplace_back(name);
  }
  return absl::StrJoin(names, ", ");
}

std::string Row(const Names& cells) {
  return absl::StrCat("| ", absl::StrJoin(cells, " | "), " |\n");
}

std::string Head(const Names& cells) {
  return absl::StrCat(Row(cells), Row(Names(cells.size(), "---")));
}

std::string Code(absl::string_view text) {
  return absl::StrCat("`", text, "`");
}

Names Cells(const UnitPlacements& triple) {
  return {Code(BufferPlacementsToString(triple.parameter)),
          Code(BufferPlacementsToString(triple.gradient)),
          Code(BufferPlacementsToString(triple.optimizer))};
}

// Without the folder, which is clear from the page.
std::string Reason(const absl::Status& status) {
  return std::string(
      absl::StripPrefix(std::string(status.message()), "fsdp: "));
}

std::string OneAxisTable() {
  std::string table =
      Head({"parameter", "gradient", "optimizer", "legal, or why not"});
  for (const UnitPlacements& triple : AllTriples(1)) {
    const absl::Status status = ValidatePlacements(triple, {"dp"}, {"dp"});
    Names cells = Cells(triple);
    const std::string name = NameOf(triple);
    cells.push_back(
        status.ok() ? absl::StrCat("**legal**", name.empty() ? "" : ": ", name)
                    : Reason(status));
    absl::StrAppend(&table, Row(cells));
  }
  return table;
}

std::string TwoAxesTables() {
  std::string legal = Head({"parameter", "gradient", "optimizer", "name"});
  std::map<std::string, int> illegal;
  for (const UnitPlacements& triple : AllTriples(2)) {
    const absl::Status status =
        ValidatePlacements(triple, {"outer", "inner"}, {"inner", "outer"});
    if (!status.ok()) {
      ++illegal[Reason(status)];
      continue;
    }
    Names cells = Cells(triple);
    cells.push_back(NameOf(triple));
    absl::StrAppend(&legal, Row(cells));
  }
  std::string reasons = Head({"triples", "why not"});
  for (const auto& [reason, count] : illegal) {
    absl::StrAppend(&reasons, Row({absl::StrCat(count), reason}));
  }
  return absl::StrCat(legal, "\n", reasons);
}

// The page, each of its blocks between "<!-- NAME -->" and "<!-- end -->"
// replaced by what it should be.
std::string Generated(std::string page,
                      const std::map<std::string, std::string>& blocks) {
  for (const auto& [name, block] : blocks) {
    const std::string begin = absl::StrCat("<!-- ", name, " -->\n");
    const size_t from = page.find(begin);
    const size_t to = page.find("<!-- end -->", from);
    if (from == std::string::npos || to == std::string::npos) continue;
    page.replace(from + begin.size(), to - from - begin.size(),
                 absl::StrCat("\n", block, "\n"));
  }
  return page;
}

std::string ReadFile(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

// To bring the page up to date: TESSERA_UPDATE_DOCS=1 fsdp_page_test.
TEST(PlacementsPageTest, ShowsEveryTripleOnOneAndTwoAxes) {
  const std::string path = absl::StrCat(DOCS, "/placements.md");
  const std::string page = ReadFile(path);
  for (const char* name : {"one axis", "two axes"}) {
    EXPECT_NE(page.find(absl::StrCat("<!-- ", name, " -->")),
              std::string::npos);
  }
  const std::string wanted = Generated(
      page, {{"one axis", OneAxisTable()}, {"two axes", TwoAxesTables()}});
  if (std::getenv("TESSERA_UPDATE_DOCS") != nullptr) {
    std::ofstream(path) << wanted;
  } else {
    EXPECT_EQ(page, wanted);
  }
}

}  // namespace
}  // namespace tessera
