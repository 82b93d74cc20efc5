#include "engine/spec/job_spec_json.h"

#include <fstream>
#include <limits>
#include <ostream>
#include <random>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/golden/golden_case.h"
#include "tests/random/random_spec.h"

namespace hilbert_ring {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A job spec whose required fields are right, with more fields behind them.
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

TEST(ParseJobSpec, NullAndAbsentMeanTheDefault) {
  const auto absent = ParseJobSpec(With(R"("causal": false)"));
  const auto nulls = ParseJobSpec(
      With(R"("kv_heads": null, "value_dim": null, "dtype": null, "mixing": null, "causal": null,
              "scale": null, "tail": null, "average_groups": null, "sequence_lengths": null,
              "ordering": null)"));
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

TEST(ParseJobSpec, LeavesRangesToValidate) {
  const auto document = ParseJobSpec(
      R"({"tokens": -9223372036854775808, "heads": 9223372036854775807, "head_dim": -8,
          "segments": [], "dilations": [], "scale": 3})");
  ASSERT_TRUE(document.ok()) << document.status();
  EXPECT_EQ(document->spec.tokens, std::numeric_limits<int64_t>::min());
  EXPECT_EQ(document->spec.heads, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(document->spec.scale, 3.0);
  EXPECT_FALSE(Validate(document->spec).ok());
}

struct BadJson {
  const char* name;
  std::string json;
  const char* words;
};

std::ostream& operator<<(std::ostream& out, const BadJson& c) { return out << c.name; }

class BadDocuments : public ::testing::TestWithParam<BadJson> {};

TEST_P(BadDocuments, AreInvalidAndNameTheField) {
  const auto document = ParseJobSpec(GetParam().json);
  ASSERT_EQ(document.status().code(), absl::StatusCode::kInvalidArgument) << document.status();
  EXPECT_THAT(std::string(document.status().message()), HasSubstr(GetParam().words));
  EXPECT_LT(document.status().message().size(), 1000u);
}

INSTANTIATE_TEST_SUITE_P(
    Syntax, BadDocuments,
    ::testing::Values(
        BadJson{"empty", "", "malformed JSON"}, BadJson{"blank", " \n", "malformed JSON"},
        BadJson{"truncated", R"({"tokens": 4, "heads")", "malformed JSON"},
        BadJson{"trailing", With(R"("causal": true)") + "x", "malformed JSON"},
        BadJson{"two_documents", With(R"("causal": true)") + "{}", "malformed JSON"},
        BadJson{"nan", With(R"("scale": NaN)"), "(at field \"scale\")"},
        BadJson{"infinity", With(R"("scale": -Infinity)"), "(at field \"scale\")"},
        BadJson{"overflow", With(R"("scale": 1e999)"), "(at field \"scale\")"},
        BadJson{"comment", "// spec\n" + With(R"("causal": true)"), "malformed JSON"},
        BadJson{"not_utf8", "{\"\xff\xfe\": 1}", "malformed JSON"},
        BadJson{"zero_byte", std::string("{\0}", 3), "malformed JSON"},
        BadJson{"zero_byte_behind", With("") + std::string("\0, more", 7), "it has a NUL"},
        BadJson{"array", "[1, 2]", "the job spec is an array"},
        BadJson{"null", "null", "the job spec is null"},
        BadJson{"repeated", With(R"("tokens": 4)"), "field \"tokens\" is given more than once"},
        BadJson{"repeated_inside", WithOrdering(R"("curve": "morton")"),
                "field \"curve\" is given more than once"},
        BadJson{"repeated_escaped", With(R"("t\u006fkens": 5)"), "more than once"},
        BadJson{"deep_arrays", With("\"grid\": " + std::string(1000000, '[')), "nests deeper"},
        BadJson{"deep_closed",
                With("\"x\": " + std::string(100000, '[') + std::string(100000, ']')),
                "nests deeper"},
        BadJson{"deep_bare", std::string(1000000, '['), "nests deeper"},
        BadJson{"deep_objects",
                [] {
                  std::string json;
                  for (int i = 0; i < 100000; ++i) json += R"({"a":)";
                  return json;
                }(),
                "nests deeper"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Fields, BadDocuments,
    ::testing::Values(
        BadJson{"unknown", With(R"("segment": [4])"),
                "unknown field \"segment\"; the nearest known one is segments"},
        BadJson{"unknown_and_near_nothing", With(R"("xyzzy": 1)"), "unknown field \"xyzzy\""},
        BadJson{"swapped_in_ordering", WithOrdering(R"("gird": [2, 2])"),
                "unknown field \"gird\" in ordering; the nearest known one is grid"},
        BadJson{"of_the_ordering", With(R"("grid": [2, 2])"),
                "unknown field \"grid\"; it is a field of ordering"},
        BadJson{"of_the_spec", WithOrdering(R"("causal": true)"),
                "unknown field \"causal\" in ordering; it is a field of the job spec itself"},
        BadJson{"unknown_in_ordering", WithOrdering(R"("order": 1)"),
                "unknown field \"order\" in ordering"},
        BadJson{"unknown_long", With(std::string("\"") + std::string(100000, 'a') + "\": 1"),
                "unknown field"},
        BadJson{"unknown_binary", With(R"("\u0000\u001b[31m": 1)"), R"(\x00\x1b[31m)"},
        BadJson{"no_tokens", R"({"heads": 1, "head_dim": 8, "segments": [], "dilations": []})",
                "tokens is required"},
        BadJson{"null_tokens",
                R"({"tokens": null, "heads": 1, "head_dim": 8, "segments": [], "dilations": []})",
                "tokens is required"},
        BadJson{"no_heads", R"({"tokens": 1, "head_dim": 8, "segments": [], "dilations": []})",
                "heads is required"},
        BadJson{"no_head_dim", R"({"tokens": 1, "heads": 8, "segments": [], "dilations": []})",
                "head_dim is required"},
        BadJson{"no_segments", R"({"tokens": 1, "heads": 1, "head_dim": 8, "dilations": []})",
                "segments is required"},
        BadJson{"no_dilations", R"({"tokens": 1, "heads": 1, "head_dim": 8, "segments": []})",
                "dilations is required"},
        BadJson{"lengths_differ",
                R"({"tokens": 1, "heads": 1, "head_dim": 8, "segments": [1, 2], "dilations": [1]})",
                "segments has 2 entries, but dilations has 1"},
        BadJson{"text_tokens",
                R"({"tokens": "4", "heads": 1, "head_dim": 8, "segments": [], "dilations": []})",
                "tokens is \"4\", but must be an integer"},
        BadJson{"fraction", With(R"("kv_heads": 2.5)"), "kv_heads is 2.5, but must be an integer"},
        BadJson{"whole_fraction", With(R"("kv_heads": 2.0)"), "kv_heads is 2.0"},
        BadJson{"exponent", With(R"("kv_heads": 1e0)"), "kv_heads is 1.0"},
        BadJson{"true_for_a_number", With(R"("value_dim": true)"), "value_dim is true"},
        BadJson{"above_64_bits", With(R"("kv_heads": 9223372036854775808)"),
                "kv_heads is 9223372036854775808"},
        BadJson{"above_unsigned", With(R"("kv_heads": 18446744073709551616)"), "kv_heads is 1.8"},
        BadJson{"below_64_bits", With(R"("kv_heads": -9223372036854775809)"), "kv_heads is -9.2"},
        BadJson{"list_entry", With(R"("sequence_lengths": [1, 2.5, 1])"),
                "sequence_lengths[1] is 2.5"},
        BadJson{"list_of_lists", With(R"("sequence_lengths": [[4]])"),
                "sequence_lengths[0] is an array"},
        BadJson{"no_list", With(R"("sequence_lengths": 4)"), "sequence_lengths is 4"},
        BadJson{"dtype", With(R"("dtype": "float64")"),
                R"(dtype is "float64", but must be "float32" or "bfloat16" or "float16")"},
        BadJson{"dtype_number", With(R"("dtype": 32)"), "dtype is 32"},
        BadJson{"mixing", With(R"("mixing": "LSE")"), R"(mixing is "LSE")"},
        BadJson{"tail", With(R"("tail": "")"), R"(tail is "")"},
        BadJson{"causal", With(R"("causal": 1)"), "causal is 1, but must be true or false"},
        BadJson{"average_groups", With(R"("average_groups": "no")"), R"(average_groups is "no")"},
        BadJson{"scale", With(R"("scale": "0.5")"), R"(scale is "0.5")"},
        BadJson{"scale_list", With(R"("scale": [0.5])"), "scale is an array"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Orderings, BadDocuments,
    ::testing::Values(
        BadJson{"text", With(R"("ordering": "hilbert")"), R"(ordering is "hilbert")"},
        BadJson{"false_for_none", With(R"("ordering": false)"), "ordering is false"},
        BadJson{"empty", With(R"("ordering": {})"), "ordering is empty"},
        BadJson{"curve", With(R"("ordering": {"curve": "peano"})"),
                R"(ordering.curve is "peano", but must be "hilbert" or "morton")"},
        BadJson{"scope", WithOrdering(R"("scope": "q")"), R"(ordering.scope is "q")"},
        BadJson{"window", WithOrdering(R"("window": 2.0)"), "ordering.window is 2.0"},
        BadJson{"grid", WithOrdering(R"("grid": 4)"), "ordering.grid is 4"},
        BadJson{"grid_entry", WithOrdering(R"("grid": [2, "2"])"), R"(ordering.grid[1] is "2")"},
        BadJson{"grid_empty", WithOrdering(R"("grid": [])"), "ordering.grid has 0"},
        BadJson{"coords", WithOrdering(R"("coords": "c.npy")"), R"(ordering.coords is "c.npy")"},
        BadJson{"coords_empty", WithOrdering(R"("coords": [])"), "ordering.coords is an array"},
        BadJson{"coords_flat", WithOrdering(R"("coords": [1, 2])"), "ordering.coords[0] is 1"},
        BadJson{"coords_no_axis", WithOrdering(R"("coords": [[]])"),
                "ordering.coords[0] has 0 entries, but must have 2 or 3"},
        BadJson{"coords_one_axis", WithOrdering(R"("coords": [[1]])"),
                "ordering.coords[0] has 1 entries, but must have 2 or 3"},
        BadJson{"coords_four_axes", WithOrdering(R"("coords": [[1, 2, 3, 4]])"),
                "ordering.coords[0] has 4 entries"},
        BadJson{"coords_ragged", WithOrdering(R"("coords": [[1, 2], [1, 2, 3]])"),
                "ordering.coords[1] has 3 entries, but must have 2"},
        BadJson{"coords_fraction", WithOrdering(R"("coords": [[1, 2], [1, 0.5]])"),
                "ordering.coords[1][1] is 0.5"},
        BadJson{"coords_nested", WithOrdering(R"("coords": [[1, [2]]])"),
                "ordering.coords[0][1] is an array"},
        BadJson{"coords_null", WithOrdering(R"("coords": [[1, null]])"),
                "ordering.coords[0][1] is null"},
        BadJson{"coords_file", WithOrdering(R"("coords_file": 3)"), "ordering.coords_file is 3"},
        BadJson{"coords_file_empty", WithOrdering(R"("coords_file": "")"),
                "ordering.coords_file is empty"},
        BadJson{"coords_twice", WithOrdering(R"("coords": [[1, 2]], "coords_file": "c.npy")"),
                "ordering.coords must not be given together with ordering.coords_file"},
        BadJson{"axes_alone", WithOrdering(R"("coords_axes": 3)"), "ordering.coords_axes needs"},
        BadJson{"axes_value", WithOrdering(R"("coords_file": "c", "coords_axes": 4)"),
                "ordering.coords_axes is 4, but must be 2 or 3"},
        BadJson{"axes_that_narrow_to_three",
                WithOrdering(R"("coords_file": "c", "coords_axes": 4294967299)"),
                "ordering.coords_axes is 4294967299"},
        BadJson{"axes_text", WithOrdering(R"("coords_file": "c", "coords_axes": "3")"),
                R"(ordering.coords_axes is "3")"},
        BadJson{"axes_of_other_rows", WithOrdering(R"("coords": [[1, 2]], "coords_axes": 3)"),
                "ordering.coords_axes is 3"}),
    [](const auto& info) { return info.param.name; });

TEST(ParseJobSpec, ReadsEveryGoldenCase) {
  for (const std::string& name : testing::GoldenCaseNames()) {
    std::ifstream file(std::string(HILBERT_RING_GOLDEN_DIR) + "/" + name + "/case.json");
    std::stringstream text;
    text << file.rdbuf();
    const auto document = ParseJobSpec(text.str());
    ASSERT_TRUE(document.ok()) << name << ": " << document.status();
    EXPECT_TRUE(Validate(document->spec).ok()) << name << ": " << Validate(document->spec);
  }
}

// Every single-byte deletion and many random edits: a status or a spec, never a crash.
TEST(ParseJobSpec, SurvivesDamagedText) {
  const std::string json =
      WithOrdering(R"("scope": "kv", "window": 0, "coords": [[1, 2], [3, 4], [5, 6], [7, 8]]}, )"
                   R"("extra": {"scale": 0.5)");
  const auto try_it = [](const std::string& text) {
    const auto document = ParseJobSpec(text);
    if (document.ok()) {
      (void)Validate(document->spec);
    } else {
      EXPECT_EQ(document.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_FALSE(document.status().message().empty());
    }
  };
  for (size_t i = 0; i < json.size(); ++i) {
    try_it(json.substr(0, i));
    try_it(json.substr(0, i) + json.substr(i + 1));
  }
  std::mt19937_64 random(7);
  constexpr char kPieces[] = "{}[]\",:-+.0123456789eEnulltruefalse \\u\xff\x80";
  for (int trial = 0; trial < 20000; ++trial) {
    std::string text = json;
    for (int edits = 1 + static_cast<int>(random() % 4); edits > 0; --edits) {
      text[random() % text.size()] = kPieces[random() % (sizeof(kPieces) - 1)];
    }
    try_it(text);
  }
}

TEST(FormatJobSpec, ReadsBackToAnEqualSpec) {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 2000; ++trial) {
    JobSpec spec = testing::RandomSpec(random);
    spec.dtype = static_cast<DataType>(trial % 3);
    ASSERT_TRUE(Validate(spec).ok()) << FormatJobSpec(spec) << ": " << Validate(spec);
    const auto document = ParseJobSpec(FormatJobSpec(spec));
    ASSERT_TRUE(document.ok()) << FormatJobSpec(spec) << ": " << document.status();
    ASSERT_EQ(document->spec, spec) << FormatJobSpec(spec);
    EXPECT_EQ(document->coords_file.has_value(),
              spec.ordering.has_value() && spec.ordering->coordinate_axes != 0);
  }
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

TEST(DataTypeName, GoesBothWays) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
    const auto parsed = ParseDataType(DataTypeName(dtype));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, dtype);
  }
  const auto unknown = ParseDataType("int8");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("dtype is \"int8\""));
}

}  // namespace
}  // namespace hilbert_ring
