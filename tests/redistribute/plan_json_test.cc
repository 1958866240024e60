#include "tessera/redistribute/plan_json.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tessera/redistribute/planner.h"
#include "tests/hostile_text.h"
#include "tests/redistribute/all_layouts.h"
#include "tests/status_matchers.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using ::tessera::testing::AllLayouts;
using ::tessera::testing::HostileTexts;
using ::tessera::testing::IsOkAndHolds;
using ::tessera::testing::Mangle;
using ::tessera::testing::StatusIs;
using ::testing::HasSubstr;

Plan PlanBetween(const char* mesh, const char* source, const char* target) {
  const Layout from =
      Layout::Parse(source, DeviceMesh::Parse(mesh).value()).value();
  return MakePlan(from, from.With(target).value(), Topology::LocalCpu())
      .value();
}

// An all-to-all over tp.
Plan OneStep() {
  Step step;
  step.kind = StepKind::kAllToAll;
  step.axes = {1};
  step.before = Layout::Parse("bf16[1024,4096] [P(sum), S(0)]",
                              DeviceMesh::Parse("dp=2,tp=4").value())
                    .value();
  step.after = step.before.With("[P(sum), S(1)]").value();
  step.bytes_received = 1'572'864;
  step.messages = 3;
  step.time_ps = 203'608'000;
  return Plan(step.before, step.after, {step});
}

// The same, then an all-reduce over dp.
Plan TwoSteps() {
  const Plan first = OneStep();
  Step second;
  second.kind = StepKind::kAllReduce;
  second.axes = {0};
  second.before = first.target();
  second.after = second.before.With("[R, S(1)]").value();
  second.bytes_received = 2'097'152;
  second.messages = 1;
  second.time_ps = 267'144'001;
  return Plan(first.source(), second.after, {first.steps()[0], second});
}

Layout ParseLayout(const char* mesh, const char* text) {
  return Layout::Parse(text, DeviceMesh::Parse(mesh).value()).value();
}

Step MakeStep(StepKind kind, absl::InlinedVector<int, 2> axes,
              const Layout& before, const Layout& after) {
  Step step;
  step.kind = kind;
  step.axes = std::move(axes);
  step.before = before;
  step.after = after;
  step.bytes_received = Communicates(kind) ? 96 : 0;
  step.messages = Communicates(kind) ? 3 : 0;
  step.time_ps = 1'500'000;
  return step;
}

// From four ranks to three others, and there on.
Plan TwoMeshes() {
  const Layout source = ParseLayout("w=2,x=2", "f32[8,6] [S(0), S(0)]");
  const Layout between = ParseLayout("y=3@4", "f32[8,6] [S(1)]");
  const Layout target = between.With("[R]").value();
  return Plan(source, target,
              {MakeStep(StepKind::kExchange, {0, 1}, source, between),
               MakeStep(StepKind::kAllGather, {0}, between, target)});
}

TEST(PlanToJsonTest, WritesWhatTheHeaderShows) {
  EXPECT_EQ(PlanToJson(OneStep()),
            R"({
  "version": 1,
  "mesh": "dp=2,tp=4",
  "tensor": "bf16[1024,4096]",
  "source": "[P(sum), S(0)]",
  "target": "[P(sum), S(1)]",
  "steps": [
    {
      "kind": "all_to_all",
      "axes": [
        "tp"
      ],
      "before": "[P(sum), S(0)]",
      "after": "[P(sum), S(1)]",
      "bytes_sent": 1572864,
      "bytes_received": 1572864,
      "messages": 3,
      "workspace_bytes": 0,
      "time_us": 203.608,
      "time_ps": 203608000
    }
  ],
  "bytes_received": 1572864,
  "launches": 1,
  "workspace_bytes": 0,
  "peak_bytes": 4194304,
  "cost_us": 203.608,
  "fingerprint": "43ac32d00d76150b"
})");
}

TEST(PlanToJsonTest, NamesMeshesWhereTheyChange) {
  const Json document = Json::parse(PlanToJson(TwoMeshes()));
  EXPECT_EQ(document["mesh"], "w=2,x=2");
  EXPECT_EQ(document["target_mesh"], "y=3@4");
  EXPECT_EQ(document["steps"][0]["after_mesh"], "y=3@4");
  EXPECT_FALSE(document["steps"][1].contains("after_mesh"));
  EXPECT_FALSE(Json::parse(PlanToJson(TwoSteps())).contains("target_mesh"));
}

TEST(PlanToJsonTest, WritesWhatStepsAndThePlanNeed) {
  const Json document = Json::parse(PlanToJson(TwoMeshes()));
  EXPECT_EQ(document["steps"][0]["workspace_bytes"], 8 * 2 * 4);
  EXPECT_EQ(document["steps"][1]["workspace_bytes"], 8 * 2 * 4);
  EXPECT_EQ(document["workspace_bytes"], 8 * 2 * 4);
  EXPECT_EQ(document["peak_bytes"], (2 * 6 + 8 * 6 + 8 * 2) * 4);
}

TEST(PlanFromJsonTest, IsTheInverseForAllPairsOfLayouts) {
  const ReduceOp ops[] = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax};
  for (const char* mesh : {"x=2,y=3", "x=1,y=2:3@1"}) {
    const std::vector<Layout> layouts =
        AllLayouts(TensorMeta::Parse("f32[5,3]").value(),
                   DeviceMesh::Parse(mesh).value(), ops);
    for (const Layout& source : layouts) {
      for (const Layout& target : layouts) {
        const Plan plan =
            MakePlan(source, target, Topology::LocalCpu()).value();
        ASSERT_THAT(PlanFromJson(PlanToJson(plan)), IsOkAndHolds(plan));
      }
    }
  }
}

TEST(PlanFromJsonTest, KeepsWhatIsUnusual) {
  EXPECT_THAT(PlanFromJson(PlanToJson(Plan({}, {}, {}))),
              IsOkAndHolds(Plan({}, {}, {})));

  const Plan ragged = PlanBetween("x=2,y=2,z=2",
                                  "f32[9] [Ragged(-3+4)[1], P(avg), "
                                  "Ragged(-3+4)[0]]",
                                  "[Ragged(-3+4)[1], R, Ragged(-3+4)[0]]");
  EXPECT_THAT(PlanFromJson(PlanToJson(ragged)), IsOkAndHolds(ragged));

  // Several axes, and figures that a double does not hold.
  Step step;
  step.kind = StepKind::kAllReduce;
  step.axes = {1, 0};
  step.before =
      Layout::Parse("f32[8] [P, P]", DeviceMesh::Parse("x=2,y=2").value())
          .value();
  step.after = step.before.With("[R, R]").value();
  step.bytes_received = std::numeric_limits<int64_t>::max();
  step.messages = (int64_t{1} << 53) + 1;
  step.time_ps = std::numeric_limits<int64_t>::max() - 1;
  const Plan large(step.before, step.after, {step});
  EXPECT_THAT(PlanFromJson(PlanToJson(large)), IsOkAndHolds(large));
}

TEST(PlanFromJsonTest, KeepsExchanges) {
  const Layout shards = ParseLayout("x=2,y=3", "f32[7,5] [S(0), S(1)]");
  const Layout others = ParseLayout("x=2,y=3", "f32[7,5] [S(0)[1], S(0)[0]]");
  const Layout joint =
      ParseLayout("x=2,y=3", "f32[7,5] [Ragged(-5+9)[0], Ragged(-5+9)[1]]");
  const Layout explicit_cut =
      ParseLayout("x=2,y=3", "f32[7,5] [R, Ragged(0,1,35,35)]");
  const Layout one_rank = ParseLayout("", "f32[7,5] []");
  const Layout elsewhere = ParseLayout("z=4:3@2", "f32[7,5] [S(0)]");
  const Plan plans[] = {
      TwoMeshes(),
      // On one mesh, and over one of its axes.
      Plan(shards, others,
           {MakeStep(StepKind::kExchange, {0, 1}, shards, others)}),
      Plan(shards, others,
           {MakeStep(StepKind::kExchange, {1}, shards, others)}),
      Plan(shards, explicit_cut,
           {MakeStep(StepKind::kExchange, {1, 0}, shards, joint),
            MakeStep(StepKind::kExchange, {0, 1}, joint, explicit_cut)}),
      // From a mesh without axes, to one and back.
      Plan(one_rank, elsewhere,
           {MakeStep(StepKind::kExchange, {}, one_rank, elsewhere)}),
      Plan(joint, joint,
           {MakeStep(StepKind::kExchange, {0, 1}, joint, elsewhere),
            MakeStep(StepKind::kExchange, {0}, elsewhere, joint)}),
  };
  for (const Plan& plan : plans) {
    EXPECT_THAT(PlanFromJson(PlanToJson(plan)), IsOkAndHolds(plan)) << plan;
  }
}

TEST(PlanFromJsonTest, KeepsCollectivesOverSeveralAxes) {
  const Layout partial = ParseLayout("x=2,y=3", "f32[7,5] [P, P]");
  const Layout shards = ParseLayout("x=2,y=3", "f32[7,5] [S(0)[1], S(0)[0]]");
  const Layout columns = ParseLayout("x=2,y=3", "f32[7,5] [S(1)[1], S(1)[0]]");
  const Layout whole = ParseLayout("x=2,y=3", "f32[7,5] [R, R]");
  const Plan plan(partial, whole,
                  {MakeStep(StepKind::kReduceScatter, {1, 0}, partial, shards),
                   MakeStep(StepKind::kAllToAll, {1, 0}, shards, columns),
                   MakeStep(StepKind::kAllGather, {1, 0}, columns, whole)});
  EXPECT_THAT(PlanFromJson(PlanToJson(plan)), IsOkAndHolds(plan));
}

TEST(PlanFromJsonTest, IgnoresSpaceAndTheOrderOfKeys) {
  const Json sorted = Json::parse(PlanToJson(TwoSteps()));
  EXPECT_THAT(PlanFromJson(sorted.dump()), IsOkAndHolds(TwoSteps()));
}

// The error for the document of TwoSteps() with one change.
absl::Status ErrorAfter(const std::function<void(Json&)>& change) {
  Json document = Json::parse(PlanToJson(TwoSteps()));
  change(document);
  return PlanFromJson(document.dump()).status();
}

// The error where the value at the pointer, e.g. "/steps/0/kind", is another.
absl::Status ErrorWith(const char* pointer, const Json& value) {
  return ErrorAfter(
      [&](Json& document) { document[Json::json_pointer(pointer)] = value; });
}

TEST(PlanFromJsonTest, NamesTheKeyThatIsWrong) {
  const auto is_wrong = [](const std::string& message) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message));
  };
  EXPECT_THAT(ErrorWith("/version", 2),
              is_wrong("plan: want 1 as 'version', found 2"));
  EXPECT_THAT(ErrorWith("/mesh", "dp=2,tp"),
              is_wrong("plan: 'mesh': mesh: want '='"));
  EXPECT_THAT(ErrorWith("/mesh", "dp = 2,tp=4"),
              is_wrong("plan: want \"dp=2,tp=4\" as 'mesh', found \"dp = 2"));
  EXPECT_THAT(ErrorWith("/mesh", "dp=2"), is_wrong("plan: 'source': layout:"));
  EXPECT_THAT(ErrorWith("/tensor", "f99[2]"), is_wrong("plan: 'tensor': "));
  EXPECT_THAT(ErrorWith("/source", "[S(7), R]"), is_wrong("plan: 'source': "));
  EXPECT_THAT(ErrorWith("/source", "[S(0), R]"),
              is_wrong("as 'steps[0].before', found \"[P(sum), S(0)]\""));
  EXPECT_THAT(ErrorWith("/target", "[R, R]"),
              is_wrong("want \"[R, S(1)]\" as 'target', found \"[R, R]\""));
  EXPECT_THAT(ErrorWith("/steps", "none"),
              is_wrong("want a list as 'steps', found \"none\""));
  EXPECT_THAT(ErrorWith("/steps", Json::array()), is_wrong("'target'"));
  EXPECT_THAT(ErrorWith("/steps/1", 3),
              is_wrong("want an object as 'steps[1]', found 3"));
  EXPECT_THAT(ErrorWith("/steps/1/kind", "teleport"),
              is_wrong("as 'steps[1].kind', found \"teleport\""));
  EXPECT_THAT(ErrorWith("/steps/1/kind", nullptr),
              is_wrong("want a text as 'steps[1].kind', found null"));
  EXPECT_THAT(ErrorWith("/steps/0/axes", Json::array()),
              is_wrong("want at least one axis as 'steps[0].axes'"));
  EXPECT_THAT(ErrorWith("/steps/0/axes/0", "pp"),
              is_wrong("plan: 'steps[0].axes': "));
  EXPECT_THAT(ErrorWith("/steps/0/axes/1", "tp"),
              is_wrong("plan: 'steps[0].axes': "));
  EXPECT_THAT(ErrorWith("/steps/0/axes/0", true),
              is_wrong("want a text as 'steps[0].axes[0]', found true"));
  EXPECT_THAT(ErrorWith("/steps/0/after", "[R, R]"),
              is_wrong("want 0 as 'steps[0].bytes_sent', found 1572864"));
  EXPECT_THAT(ErrorAfter([](Json& document) {
                document["steps"][0].erase("bytes_sent");
                document["steps"][0]["after"] = "[R, R]";
              }),
              is_wrong("want \"[R, R]\" as 'steps[1].before', found"));
  EXPECT_THAT(ErrorWith("/steps/1/before", "[R, R]"),
              is_wrong("'steps[1].before', found \"[R, R]\""));
  EXPECT_THAT(ErrorWith("/steps/1/after", "[R, R]"), is_wrong("'target'"));
  for (const char* figure : {"bytes_received", "messages", "time_ps"}) {
    const std::string pointer = absl::StrCat("/steps/1/", figure);
    const std::string name = absl::StrCat("'steps[1].", figure, "'");
    for (const Json& value :
         {Json(-1), Json(1.0), Json(1e300), Json("1"), Json(),
          Json(uint64_t{1} << 63), Json::object(), Json::array({1})}) {
      EXPECT_THAT(ErrorWith(pointer.c_str(), value), is_wrong(name)) << value;
    }
  }
  EXPECT_THAT(ErrorWith("/steps/0/bytes_sent", 3),
              is_wrong("want 1572864 as 'steps[0].bytes_sent', found 3"));
  EXPECT_THAT(ErrorWith("/steps/1/time_us", 3), is_wrong("steps[1].time_us"));
  EXPECT_THAT(ErrorWith("/bytes_received", 1), is_wrong("'bytes_received'"));
  EXPECT_THAT(ErrorWith("/launches", 1), is_wrong("'launches'"));
  EXPECT_THAT(ErrorWith("/workspace_bytes", 1), is_wrong("'workspace_bytes'"));
  EXPECT_THAT(ErrorWith("/peak_bytes", 1), is_wrong("'peak_bytes'"));
  EXPECT_THAT(ErrorWith("/steps/1/workspace_bytes", 1),
              is_wrong("want 0 as 'steps[1].workspace_bytes', found 1"));
  EXPECT_THAT(ErrorWith("/cost_us", Json::array()), is_wrong("'cost_us'"));
  EXPECT_THAT(ErrorWith("/fingerprint", "0123456789abcdef"),
              is_wrong("'fingerprint', found \"0123456789abcdef\""));
}

TEST(PlanFromJsonTest, NamesKeysThatAreMissing) {
  for (const char* key : {"version", "mesh", "tensor", "source", "steps"}) {
    EXPECT_THAT(
        ErrorAfter([&](Json& document) { document.erase(key); }),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 absl::StrCat("plan: want a key '", key, "', found none")));
  }
  for (const char* key :
       {"kind", "axes", "after", "bytes_received", "messages", "time_ps"}) {
    EXPECT_THAT(
        ErrorAfter([&](Json& document) { document["steps"][1].erase(key); }),
        StatusIs(
            absl::StatusCode::kInvalidArgument,
            absl::StrCat("plan: want a key 'steps[1].", key, "', found none")));
  }
}

TEST(PlanFromJsonTest, DoesWithoutWhatFollowsFromTheRest) {
  Json document = Json::parse(PlanToJson(TwoMeshes()));
  for (const char* key :
       {"target", "target_mesh", "bytes_received", "launches",
        "workspace_bytes", "peak_bytes", "cost_us", "fingerprint"}) {
    ASSERT_EQ(document.erase(key), 1u) << key;
    EXPECT_THAT(PlanFromJson(document.dump()), IsOkAndHolds(TwoMeshes()));
  }
  for (const char* key :
       {"before", "bytes_sent", "workspace_bytes", "time_us"}) {
    ASSERT_EQ(document["steps"][0].erase(key), 1u) << key;
    EXPECT_THAT(PlanFromJson(document.dump()), IsOkAndHolds(TwoMeshes()));
  }
}

TEST(PlanFromJsonTest, NamesKeysThatAreUnknown) {
  const auto is_unknown = [](const std::string& key) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    absl::StrCat("plan: want no key '", key, "', found one"));
  };
  EXPECT_THAT(ErrorWith("/colour", "red"), is_unknown("colour"));
  EXPECT_THAT(ErrorWith("/steps/0/colour", "red"),
              is_unknown("steps[0].colour"));
  // Named only where it is another.
  EXPECT_THAT(ErrorWith("/target_mesh", "dp=2,tp=4"),
              is_unknown("target_mesh"));
  EXPECT_THAT(ErrorWith("/steps/0/after_mesh", "dp=2,tp=4"),
              is_unknown("steps[0].after_mesh"));
}

// Only an exchange leads to another mesh, whatever its axes.
TEST(PlanFromJsonTest, RejectsAnotherMeshBehindWhatIsNoExchange) {
  for (const char* kind : {"relabel", "slice", "fill", "scale", "all_gather",
                           "reduce_scatter", "all_reduce", "all_to_all"}) {
    const std::string text = absl::StrCat(
        R"({"version":1,"mesh":"a=2","tensor":"f32[8]","source":"[P(sum)]",)",
        R"("steps":[{"kind":")", kind,
        R"(","axes":["a"],"after_mesh":"c0=2,c1=2","after":"[S(0), S(0)]",)",
        R"("bytes_received":1,"messages":1,"time_ps":1}]})");
    EXPECT_THAT(PlanFromJson(text), StatusIs(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("after_mesh")))
        << kind;
  }
}

TEST(PlanFromJsonTest, NamesTheMeshThatIsWrong) {
  const auto error = [](const char* pointer, const Json& value) {
    Json document = Json::parse(PlanToJson(TwoMeshes()));
    document[Json::json_pointer(pointer)] = value;
    return PlanFromJson(document.dump()).status();
  };
  const auto is_wrong = [](const std::string& message) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message));
  };
  EXPECT_THAT(error("/target_mesh", "y=3"),
              is_wrong("plan: want \"y=3@4\" as 'target_mesh', found \"y=3\""));
  EXPECT_THAT(error("/target_mesh", nullptr), is_wrong("'target_mesh'"));
  EXPECT_THAT(error("/steps/0/after_mesh", "y=3"),
              is_wrong("plan: want \"y=3\" as 'target_mesh'"));
  EXPECT_THAT(error("/steps/0/after_mesh", "y=3@"),
              is_wrong("plan: 'steps[0].after_mesh': "));
  EXPECT_THAT(error("/steps/0/after_mesh", 3),
              is_wrong("want a text as 'steps[0].after_mesh', found 3"));
  EXPECT_THAT(error("/steps/0/after_mesh", "y=3,z=2"),
              is_wrong("plan: 'steps[0].after': layout: "));
  // Axes are those of the mesh that the step leaves.
  EXPECT_THAT(error("/steps/0/axes/0", "y"), is_wrong("'steps[0].axes'"));
  EXPECT_THAT(error("/steps/1/axes/0", "x"), is_wrong("'steps[1].axes'"));
  EXPECT_THAT(error("/steps/1/axes", Json::array()),
              is_wrong("want at least one axis as 'steps[1].axes'"));
}

TEST(PlanFromJsonTest, RejectsWhatIsNoDocument) {
  const size_t kDeep = 200'000;
  const std::string deep_list(kDeep, '[');
  std::string deep_object;
  for (size_t i = 0; i < kDeep; ++i) deep_object += "{\"steps\":";
  const std::string texts[] = {
      "",
      "null",
      "1",
      "[]",
      "{}",
      "{\"version\": 1e999}",
      "{\"version\": 1} x",
      std::string("{\0}", 3),
      "{\"\xff\": 1}",
      deep_list,
      deep_list + std::string(kDeep, ']'),
      deep_object,
      deep_object + "1" + std::string(kDeep, '}'),
      "{\"version\": " + deep_list + std::string(kDeep, ']') + "}",
      "{\"version\": 1, \"mesh\": \"" + std::string(kDeep, 'x') + "\"}",
      "{\"version\": 1" + std::string(kDeep, '0') + "}",
  };
  for (const std::string& text : texts) {
    const absl::Status status = PlanFromJson(text).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument))
        << text.substr(0, 100);
    EXPECT_LT(status.message().size(), 400u);
  }
}

// Whatever is read means what its own text says.
TEST(PlanFromJsonTest, SurvivesRandomEdits) {
  const uint32_t seed = ::testing::UnitTest::GetInstance()->random_seed();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  const std::vector<std::string> valid = {
      PlanToJson(TwoSteps()), PlanToJson(Plan({}, {}, {})),
      PlanToJson(PlanBetween("x=2,y=2", "f32[4] [Ragged(0,1,4), P]",
                             "[Ragged(0,1,4), R]")),
      PlanToJson(TwoMeshes())};
  int read = 0;
  for (const std::string& text : HostileTexts(valid, seed, 2000)) {
    const absl::StatusOr<Plan> plan = PlanFromJson(text);
    if (!plan.ok()) {
      ASSERT_THAT(plan, StatusIs(absl::StatusCode::kInvalidArgument)) << text;
      continue;
    }
    ++read;
    Json written = Json::parse(PlanToJson(*plan));
    const Json whole = written;
    written.merge_patch(Json::parse(text));
    ASSERT_EQ(written, whole) << text;
  }
  EXPECT_GT(read, 0);  // e.g. a space more
}

// Edits of one text in the document: meshes, tensors and layouts that parse
// but do not fit.
TEST(PlanFromJsonTest, SurvivesRandomEditsOfItsTexts) {
  const uint32_t seed = ::testing::UnitTest::GetInstance()->random_seed();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  const char* const kPointers[] = {"/mesh",           "/tensor",
                                   "/source",         "/target",
                                   "/target_mesh",    "/steps/0/kind",
                                   "/steps/0/before", "/steps/0/after_mesh",
                                   "/steps/0/axes/0", "/steps/1/after",
                                   "/fingerprint"};
  const Json whole = Json::parse(PlanToJson(TwoMeshes()));
  for (int i = 0; i < 4000; ++i) {
    Json document = whole;
    Json& text = document[Json::json_pointer(
        kPointers[random() % std::size(kPointers)])];
    text = Mangle(text.get<std::string>(), random);
    const absl::StatusOr<Plan> plan = PlanFromJson(
        document.dump(-1, ' ', false, Json::error_handler_t::replace));
    if (document == whole) continue;
    ASSERT_THAT(plan, StatusIs(absl::StatusCode::kInvalidArgument))
        << document.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

TEST(StepKindTest, ParsesEveryName) {
  for (int i = 0; i < 256; ++i) {
    const auto kind = static_cast<StepKind>(i);
    if (StepKindName(kind).empty()) continue;
    EXPECT_EQ(ParseStepKind(StepKindName(kind)), kind) << StepKindName(kind);
  }
  EXPECT_EQ(ParseStepKind("AG"), std::nullopt);
  EXPECT_EQ(ParseStepKind(""), std::nullopt);
}

}  // namespace
}  // namespace tessera
