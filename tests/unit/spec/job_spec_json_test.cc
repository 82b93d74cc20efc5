#include "engine/spec/job_spec_json.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A valid job spec, followed by more fields.
std::string With(const std::string& fields) {
  return R"({"tokens": 4, "heads": 2, "head_dim": 8, "segments": [2, 4], "dilations": [1, 2], )" +
         fields + "}";
}

std::string WithOrdering(const std::string& fields) {
  return With(R"("ordering": {"curve": "hilbert", )" + fields + "}");
}

TEST(ParseJobSpec, ReadsEveryField) {
  const auto document = ParseJobSpec(R"({
      "tokens": 480, "heads": 8, "kv_heads": 2, "head_dim": 64, "value_dim": 32,
      "dtype": "bfloat16", "segments": [64, 320], "dilations": [1, 2], "mixing": "lse",
      "causal": true, "scale": -0.25, "tail": "zero", "average_groups": false,
      "sequence_lengths": [240, 240],
      "ordering": {"curve": "morton", "scope": "kv", "window": 0, "grid": [4, 6, 10]}})");
  ASSERT_TRUE(document.ok()) << document.status();
  JobSpec expected;
  expected.tokens = 480;
  expected.heads = 8;
  expected.kv_heads = 2;
  expected.head_dim = 64;
  expected.value_dim = 32;
  expected.dtype = DataType::kBFloat16;
  expected.branches = {{64, 1}, {320, 2}};
  expected.mixing = Mixing::kLse;
  expected.causal = true;
  expected.scale = -0.25;
  expected.tail = Tail::kZero;
  expected.average_groups = false;
  expected.sequence_lengths = {240, 240};
  expected.ordering =
      Ordering{.curve = Curve::kMorton, .scope = OrderScope::kKv, .window = 0, .grid = {4, 6, 10}};
  EXPECT_EQ(document->spec, expected);
  EXPECT_FALSE(document->coords_file.has_value());
  EXPECT_TRUE(document->coords.empty());
  EXPECT_TRUE(Validate(document->spec).ok());
}

TEST(ParseJobSpec, ReadsWhatChangesScores) {
  const auto document = ParseJobSpec(With(R"("window": [3, null], "softcap": 30, "sinks": [1, -2.5],
                           "alibi": {"slopes": [0.5, -1], "distance": "tokens"})"));
  ASSERT_TRUE(document.ok()) << document.status();
  EXPECT_EQ(document->spec.window, Window{.left = 3});
  EXPECT_EQ(document->spec.softcap, 30);
  EXPECT_THAT(document->spec.sinks, ElementsAre(1, -2.5));
  EXPECT_EQ(document->spec.alibi, (Alibi{.slopes = {0.5, -1}}));
  const auto right =
      ParseJobSpec(With(R"("window": [null, 0], "alibi": {"distance": null, "slopes": [0, 0]})"));
  ASSERT_TRUE(right.ok()) << right.status();
  EXPECT_EQ(right->spec.window, Window{.right = 0});
  EXPECT_TRUE(right->spec.alibi.has_value());
  for (const int axes : {2, 3}) {
    const auto measured = ParseJobSpec(With(R"("alibi": {"slopes": [0, 1], "distance": "coords")" +
                                            std::string(axes == 2 ? "}" : R"(, "axes": 3})")));
    ASSERT_TRUE(measured.ok()) << measured.status();
    EXPECT_EQ(measured->spec.alibi, (Alibi{.slopes = {0, 1}, .coordinate_axes = axes}));
    EXPECT_EQ(measured->bias_axes.has_value(), axes == 3);
  }
}

TEST(ParseJobSpec, NullAndAbsentMeanTheDefault) {
  const auto absent = ParseJobSpec(With(R"("causal": false)"));
  const auto nulls = ParseJobSpec(
      With(R"("kv_heads": null, "value_dim": null, "dtype": null, "mixing": null, "causal": null,
              "scale": null, "tail": null, "average_groups": null, "sequence_lengths": null,
              "ordering": null, "window": null, "softcap": null, "alibi": null,
              "sinks": null)"));
  ASSERT_TRUE(absent.ok()) << absent.status();
  ASSERT_TRUE(nulls.ok()) << nulls.status();
  EXPECT_EQ(absent->spec, nulls->spec);
  EXPECT_EQ(absent->spec.kv_heads, 2);
  EXPECT_EQ(absent->spec.value_dim, 8);
  EXPECT_EQ(absent->spec.dtype, DataType::kFloat32);
  EXPECT_TRUE(absent->spec.average_groups);
  EXPECT_FALSE(absent->spec.scale.has_value());
  EXPECT_FALSE(absent->spec.ordering.has_value());
}

TEST(ParseJobSpec, ReadsInlineCoordinates) {
  const auto document = ParseJobSpec(WithOrdering(R"("coords": [[1, 2, 3], [4, 5, 6], [0, 0, -1],
                                                             [7, 8, 9]])"));
  ASSERT_TRUE(document.ok()) << document.status();
  EXPECT_THAT(document->coords, ElementsAre(1, 2, 3, 4, 5, 6, 0, 0, -1, 7, 8, 9));
  EXPECT_EQ(document->spec.ordering->coordinate_axes, 3);
  EXPECT_FALSE(document->coords_file.has_value());
}

TEST(ParseJobSpec, ACoordinatesFileHasTwoAxesUnlessTheSpecSaysThree) {
  const auto two = ParseJobSpec(WithOrdering(R"("coords_file": "c.npy")"));
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(two->coords_file, "c.npy");
  EXPECT_FALSE(two->coords_axes.has_value());
  EXPECT_EQ(two->spec.ordering->coordinate_axes, 2);
  const auto three = ParseJobSpec(WithOrdering(R"("coords_file": "c.npy", "coords_axes": 3)"));
  ASSERT_TRUE(three.ok()) << three.status();
  EXPECT_EQ(three->spec.ordering->coordinate_axes, 3);
}

using Refused = std::vector<std::pair<std::string, std::string>>;  // document, reason

void ExpectRefused(const Refused& documents) {
  for (const auto& [json, why] : documents) {
    const auto document = ParseJobSpec(json);
    EXPECT_EQ(document.status().code(), absl::StatusCode::kInvalidArgument) << why;
    EXPECT_THAT(std::string(document.status().message()), HasSubstr(why));
    EXPECT_LT(document.status().message().size(), 1000u);
  }
}

TEST(BadDocuments, OfWrongSyntax) {
  std::string deep_objects;
  for (int i = 0; i < 100000; ++i) deep_objects += R"({"a":)";
  const std::string whole = With(R"("causal": true)");
  ExpectRefused({
      {"", "malformed JSON"},
      {whole + "x", "malformed JSON"},
      {With(R"("scale": NaN)"), "(at field \"scale\")"},
      {"// spec\n" + whole, "malformed JSON"},
      {"{\"\xff\xfe\": 1}", "malformed JSON"},
      {whole + std::string("\0, more", 7), "it has a NUL"},
      {"[1, 2]", "the job spec is an array"},
      {With(R"("tokens": 4)"), "field \"tokens\" is given more than once"},
      {WithOrdering(R"("curve": "morton")"), "field \"curve\" is given more than once"},
      {With("\"grid\": " + std::string(1000000, '[')), "nests deeper"},
      {deep_objects, "nests deeper"},
  });
}

TEST(BadDocuments, OfWrongFields) {
  ExpectRefused({
      {With(R"("segment": [4])"), "unknown field \"segment\"; the nearest known one is segments"},
      {WithOrdering(R"("gird": [2, 2])"), "unknown field \"gird\" in ordering; the nearest known"},
      {With(R"("grid": [2, 2])"), "unknown field \"grid\"; it is a field of ordering"},
      {WithOrdering(R"("causal": true)"), "it is a field of the job spec itself"},
      {With("\"" + std::string(100000, 'a') + "\": 1"), "unknown field"},
      {With(R"("\u0000\u001b[31m": 1)"), R"(\x00\x1b[31m)"},
      {With(R"("kv_heads": 2.5)"), "kv_heads is 2.5, must be an integer"},
      {With(R"("kv_heads": 9223372036854775808)"), "kv_heads is 9223372036854775808"},
      {With(R"("sequence_lengths": [1, 2.5, 1])"), "sequence_lengths[1] is 2.5"},
      {With(R"("sequence_lengths": 4)"), "sequence_lengths is 4"},
      {With(R"("dtype": "int8")"), R"(must be "float32" or "bfloat16" or "float16")"},
      {With(R"("mixing": "LSE")"), R"(mixing is "LSE")"},
      {With(R"("causal": 1)"), "causal is 1, must be true or false"},
  });
  // Each field is missing once.
  const std::vector<std::string> fields = {R"("tokens": 4)", R"("heads": 2)", R"("head_dim": 8)",
                                           R"("segments": [4])", R"("dilations": [1])"};
  for (const std::string& missing : fields) {
    std::string json = R"({"causal": true)";
    for (const std::string& field : fields) json += field == missing ? "" : ", " + field;
    ExpectRefused({{json + "}", missing.substr(1, missing.find(':') - 2) + " is required"}});
  }
  ExpectRefused(
      {{R"({"tokens": 1, "heads": 1, "head_dim": 8, "segments": [1, 2], "dilations": [1]})",
        "segments has 2 entries, but dilations has 1"}});
}

TEST(BadDocuments, OfWrongScores) {
  ExpectRefused({
      {With(R"("window": 3)"), "window is 3, must be [left, right], each an integer or null"},
      {With(R"("window": [3])"), "window is an array, must be [left, right]"},
      {With(R"("window": [1, 2, 3])"), "window is an array, must be [left, right]"},
      {With(R"("window": [null, 2.0])"), "window[1] is 2.0, must be an integer"},
      {With(R"("window": [true, 2])"), "window[0] is true, must be an integer"},
      {With(R"("softcap": "30")"), "softcap is \"30\", must be a number"},
      {With(R"("sinks": 1)"), "sinks is 1, must be a list of numbers"},
      {With(R"("sinks": [])"), "sinks has 0 entries, must have one for each head"},
      {With(R"("sinks": [0, null])"), "sinks[1] is null, must be a number"},
      {With(R"("alibi": [0, 0])"), "alibi is an array, must be an object"},
      {With(R"("alibi": {"distance": "tokens"})"), "alibi.slopes is required"},
      {With(R"("alibi": {"slopes": [0, true]})"), "alibi.slopes[1] is true, must be a number"},
      {With(R"("alibi": {"slopes": [0, 0], "distance": "cells"})"),
       "alibi.distance is \"cells\", must be \"tokens\" or \"coords\""},
      {With(R"("alibi": {"slopes": [0, 0], "distance": "coords", "axes": 4})"),
       "alibi.axes is 4, must be 2 or 3"},
      {With(R"("alibi": {"slopes": [0, 0], "axes": 2})"),
       "alibi.axes is 2, must be absent with distance tokens"},
      {With(R"("alibi": {"slopes": [0, 0], "distence": "tokens"})"),
       "unknown field \"distence\" in alibi; the nearest known one is distance"},
  });
}

TEST(BadDocuments, OfWrongOrderings) {
  ExpectRefused({
      {With(R"("ordering": "hilbert")"), R"(ordering is "hilbert")"},
      {With(R"("ordering": {})"), "ordering is empty"},
      {With(R"("ordering": {"curve": "peano"})"), R"(ordering.curve is "peano")"},
      {WithOrdering(R"("window": 2.0)"), "ordering.window is 2.0"},
      {WithOrdering(R"("grid": [2, "2"])"), R"(ordering.grid[1] is "2")"},
      {WithOrdering(R"("grid": [])"), "ordering.grid has 0"},
      {WithOrdering(R"("coords": [1, 2])"), "ordering.coords[0] is 1"},
      {WithOrdering(R"("coords": [[]])"), "ordering.coords[0] has 0 entries, must have 2 or 3"},
      {WithOrdering(R"("coords": [[1, 2], [1, 2, 3]])"), "ordering.coords[1] has 3 entries"},
      {WithOrdering(R"("coords": [[1, 2], [1, 0.5]])"), "ordering.coords[1][1] is 0.5"},
      {WithOrdering(R"("coords_file": "")"), "ordering.coords_file is empty"},
      {WithOrdering(R"("coords": [[1, 2]], "coords_file": "c.npy")"),
       "ordering.coords must not be given together with ordering.coords_file"},
      {WithOrdering(R"("coords_axes": 3)"), "ordering.coords_axes needs"},
      {WithOrdering(R"("coords_file": "c", "coords_axes": 4294967299)"),
       "ordering.coords_axes is 4294967299"},  // 3 in 32 bits
      {WithOrdering(R"("coords": [[1, 2]], "coords_axes": 3)"), "ordering.coords_axes is 3"},
  });
}

TEST(FormatJobSpec, KeepsExtremeNumbers) {
  JobSpec spec;
  spec.tokens = std::numeric_limits<int64_t>::max();
  spec.heads = std::numeric_limits<int64_t>::min();
  spec.branches = {{int64_t{1} << 62, 1}};
  for (const double scale : {0.1, 1e-308, 4.9e-324, 1.7976931348623157e308, -1.0 / 3.0, 0.0}) {
    spec.scale = scale;
    const auto document = ParseJobSpec(FormatJobSpec(spec));
    ASSERT_TRUE(document.ok()) << document.status();
    EXPECT_EQ(document->spec, spec);
  }
}

TEST(FormatJobSpec, KeepsWhatChangesScores) {
  JobSpec spec;
  spec.branches = {{8, 1}};
  spec.softcap = 0.1;
  spec.sinks = {-1.0 / 3.0, 1e-308};
  spec.alibi = Alibi{.slopes = {0.1, -0.0}};
  for (const Window& window : {Window{}, Window{.left = 0}, Window{.right = 7}}) {
    spec.window = window;
    const auto document = ParseJobSpec(FormatJobSpec(spec));
    ASSERT_TRUE(document.ok()) << document.status();
    EXPECT_EQ(document->spec, spec);
    spec.alibi->coordinate_axes = window.left ? 2 : 3;
  }
}

}  // namespace
}  // namespace hilbert_ring
