#include "tessera/base/json_reader.h"

#include <cstdint>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status_matchers.h"

namespace tessera::internal {
namespace {

using ::tessera::testing::IsOkAndHolds;
using ::tessera::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::SizeIs;

auto IsWrong(const std::string& message) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message));
}

constexpr char kDocument[] = R"({
  "kind": "all_gather",
  "axes": ["dp", 7],
  "nested": {"deep": {"count": 3, "huge": 18446744073709551615}}
})";

class JsonReaderTest : public ::testing::Test {
 protected:
  const Json document_ = ParseJson("part", kDocument).value();
  const JsonReader reader_{"part", document_};
};

TEST_F(JsonReaderTest, ReadsWhatIsThere) {
  EXPECT_TRUE(reader_.Has("kind"));
  EXPECT_FALSE(reader_.Has("colour"));
  EXPECT_THAT(reader_.Member("kind")->Text(), IsOkAndHolds("all_gather"));
  EXPECT_THAT(reader_.Member("axes")->Length(), IsOkAndHolds(2u));
  EXPECT_THAT(reader_.Member("axes")->Element(1).Integer(0), IsOkAndHolds(7));
  EXPECT_THAT(reader_.Members(), IsOkAndHolds(SizeIs(3)));
  EXPECT_OK(reader_.CheckKeys({"kind", "axes"}, {"nested", "colour"}));
}

TEST_F(JsonReaderTest, NamesWhatIsWrongByItsPath) {
  const JsonReader deep = *reader_.Member("nested")->Member("deep");
  EXPECT_THAT(deep.Text(),
              IsWrong("part: want a text as 'nested.deep', found an object"));
  EXPECT_THAT(deep.Member("kind"),
              IsWrong("part: want a key 'nested.deep.kind', found none"));
  EXPECT_THAT(deep.CheckKeys({"count"}),
              IsWrong("part: want no key 'nested.deep.huge', found one"));
  EXPECT_THAT(deep.CheckKeys({"count", "huge", "kind"}),
              IsWrong("part: want a key 'nested.deep.kind', found none"));
  EXPECT_THAT(reader_.Member("axes")->Element(1).Text(),
              IsWrong("part: want a text as 'axes[1]', found 7"));
  EXPECT_THAT(reader_.Member("axes")->Member("x"),
              IsWrong("part: want an object as 'axes', found a list"));
  EXPECT_THAT(reader_.Length(),
              IsWrong("part: want a list as the document, found an object"));
  EXPECT_THAT(reader_.Member("kind")->Parsed([](const std::string& text) {
    return absl::StatusOr<int>(absl::NotFoundError("no " + text));
  }),
              IsWrong("part: 'kind': no all_gather"));
}

TEST_F(JsonReaderTest, ReadsIntegersWithinBounds) {
  const JsonReader count =
      *reader_.Member("nested")->Member("deep")->Member("count");
  EXPECT_THAT(count.Integer(3, 3), IsOkAndHolds(3));
  EXPECT_THAT(count.Integer(4),
              IsWrong("want an integer from 4 to 9223372036854775807 as "
                      "'nested.deep.count', found 3"));
  EXPECT_THAT(count.Integer(0, 2), IsWrong("from 0 to 2 as"));
  EXPECT_THAT(reader_.Member("nested")->Member("deep")->Member("huge")->Integer(
                  std::numeric_limits<int64_t>::min()),
              IsWrong("found 18446744073709551615"));
}

TEST(ParseJsonTest, WantsEveryKeyOnceInItsObject) {
  EXPECT_OK(ParseJson("part", R"({"a": {"a": 1}, "b": [{"a": 1}]})"));
  EXPECT_THAT(ParseJson("part", R"({"b": [{"a": 1, "a": 2}]})"),
              IsWrong("part: want every key once, found 'a' twice"));
  EXPECT_THAT(ParseJson("part", "{"), IsWrong("part: want JSON, found "));
}

}  // namespace
}  // namespace tessera::internal
