#include "engine/spec/job_spec.h"

#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <string>

#include "engine/spec/field_error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/spec/valid_spec.h"

namespace hilbert_ring {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

JobSpec SpecWith(Ordering ordering, std::vector<int64_t> lengths = {}) {
  JobSpec spec = ValidSpec();
  spec.ordering = std::move(ordering);
  spec.sequence_lengths = std::move(lengths);
  return spec;
}

struct BadCase {
  std::string name;
  std::function<void(JobSpec&)> change;
  absl::StatusCode code;
  std::vector<std::string> words;  // field, value and limit
};

std::ostream& operator<<(std::ostream& out, const BadCase& c) { return out << c.name; }

class BadSpecs : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadSpecs, AreRefusedByFieldValueAndLimit) {
  JobSpec spec = ValidSpec();
  GetParam().change(spec);
  const absl::Status status = Validate(spec);
  EXPECT_EQ(status.code(), GetParam().code) << status;
  const auto wrong = FieldOf(status);
  ASSERT_TRUE(wrong.has_value()) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(wrong->field.substr(0, 8)));
  if (wrong->limit) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(*wrong->limit)));
  }
  for (const std::string& word : GetParam().words) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kOver = absl::StatusCode::kOutOfRange;

INSTANTIATE_TEST_SUITE_P(
    Shapes, BadSpecs,
    ::testing::Values(
        BadCase{"no_tokens", [](JobSpec& s) { s.tokens = 0; }, kInvalid, {"tokens is 0", "1"}},
        BadCase{"negative_tokens",
                [](JobSpec& s) { s.tokens = kLeast; },
                kInvalid,
                {"tokens is -9223372036854775808"}},
        BadCase{"too_many_tokens",
                [](JobSpec& s) { s.tokens = (int64_t{1} << 40) + 1; },
                kOver,
                {"tokens is 1099511627777", "1099511627776"}},
        BadCase{"no_heads", [](JobSpec& s) { s.heads = 0; }, kInvalid, {"heads is 0"}},
        BadCase{
            "too_many_heads", [](JobSpec& s) { s.heads = 4097; }, kOver, {"heads is 4097", "4096"}},
        BadCase{"no_kv_heads", [](JobSpec& s) { s.kv_heads = 0; }, kInvalid, {"kv_heads is 0"}},
        BadCase{
            "negative_kv_heads", [](JobSpec& s) { s.kv_heads = -2; }, kInvalid, {"kv_heads is -2"}},
        BadCase{"kv_heads_that_do_not_divide",
                [](JobSpec& s) { s.kv_heads = 3; },
                kInvalid,
                {"kv_heads is 3", "8"}},
        BadCase{"more_kv_heads_than_heads",
                [](JobSpec& s) { s.kv_heads = 16; },
                kInvalid,
                {"kv_heads is 16", "8"}},
        BadCase{"head_dim_zero", [](JobSpec& s) { s.head_dim = 0; }, kInvalid, {"head_dim is 0"}},
        BadCase{"head_dim_between_steps",
                [](JobSpec& s) { s.head_dim = 60; },
                kInvalid,
                {"head_dim is 60", "8 to 256 in steps of 8"}},
        BadCase{"head_dim_too_large",
                [](JobSpec& s) { s.head_dim = 264; },
                kInvalid,
                {"head_dim is 264", "256"}},
        BadCase{"negative_value_dim",
                [](JobSpec& s) { s.value_dim = -8; },
                kInvalid,
                {"value_dim is -8"}},
        BadCase{"value_dim_too_large",
                [](JobSpec& s) { s.value_dim = kMost; },
                kInvalid,
                {"value_dim is 9223372036854775807"}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Pattern, BadSpecs,
    ::testing::Values(
        BadCase{"no_branches", [](JobSpec& s) { s.branches.clear(); }, kInvalid, {"segments", "0"}},
        BadCase{"too_many_branches",
                [](JobSpec& s) {
                  s.branches.assign(65, {8, 1});
                },
                kOver,
                {"branches", "65", "64"}},
        BadCase{"segment_zero",
                [](JobSpec& s) { s.branches[1].segment = 0; },
                kInvalid,
                {"segments[1] is 0", "1"}},
        BadCase{"segment_beyond_arithmetic",
                [](JobSpec& s) { s.branches[0].segment = kMost; },
                kOver,
                {"segments[0] is 9223372036854775807"}},
        BadCase{"dilation_zero",
                [](JobSpec& s) { s.branches[0].dilation = 0; },
                kInvalid,
                {"dilations[0] is 0"}},
        BadCase{"negative_dilation",
                [](JobSpec& s) { s.branches[1].dilation = -1; },
                kInvalid,
                {"dilations[1] is -1"}},
        BadCase{"dilation_beyond_arithmetic",
                [](JobSpec& s) { s.branches[1].dilation = kMost; },
                kOver,
                {"dilations[1] is 9223372036854775807"}},
        BadCase{
            "scale_nan", [](JobSpec& s) { s.scale = std::nan(""); }, kInvalid, {"scale", "nan"}},
        BadCase{"scale_beyond_float32",
                [](JobSpec& s) { s.scale = 1e39; },
                kInvalid,
                {"scale is 1e+39", "float32", "3.40282e+38"}},
        BadCase{"scale_infinite",
                [](JobSpec& s) { s.scale = -std::numeric_limits<double>::infinity(); },
                kInvalid,
                {"scale is -inf"}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Sequences, BadSpecs,
                         ::testing::Values(BadCase{"empty_sequence",
                                                   [](JobSpec& s) {
                                                     s.sequence_lengths = {64, 0};
                                                   },
                                                   kInvalid,
                                                   {"sequence_lengths[1] is 0"}},
                                           BadCase{"negative_sequence",
                                                   [](JobSpec& s) {
                                                     s.sequence_lengths = {65, -1};
                                                   },
                                                   kInvalid,
                                                   {"sequence_lengths[0] is 65"}},
                                           BadCase{"too_short",
                                                   [](JobSpec& s) {
                                                     s.sequence_lengths = {32, 31};
                                                   },
                                                   kInvalid,
                                                   {"sequence_lengths add up to 63", "64"}},
                                           BadCase{"too_long",
                                                   [](JobSpec& s) {
                                                     s.sequence_lengths = {32, 33};
                                                   },
                                                   kInvalid,
                                                   {"sequence_lengths[1] is 33", "64"}},
                                           BadCase{"sum_that_overflows_to_tokens",
                                                   [](JobSpec& s) {
                                                     s.sequence_lengths = {kMost, kMost, 66};
                                                   },
                                                   kInvalid,
                                                   {"sequence_lengths[0] is 9223372036854775807"}},
                                           BadCase{"too_many_sequences",
                                                   [](JobSpec& s) {
                                                     s.tokens = (1 << 20) + 1;
                                                     s.sequence_lengths.assign((1 << 20) + 1, 1);
                                                   },
                                                   kOver,
                                                   {"sequence_lengths is 1048577", "1048576"}}),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Orderings, BadSpecs,
    ::testing::Values(BadCase{"negative_window",
                              [](JobSpec& s) { s = SpecWith({.window = -1}); },
                              kInvalid,
                              {"ordering.window is -1"}},
                      BadCase{"window_with_grid",
                              [](JobSpec& s) {
                                s = SpecWith({.window = 16, .grid = {8, 8}});
                              },
                              kInvalid,
                              {"ordering.window is 16", "ordering.grid"}},
                      BadCase{
                          "window_with_coordinates",
                          [](JobSpec& s) { s = SpecWith({.window = 16, .coordinate_axes = 2}); },
                          kInvalid,
                          {"ordering.window is 16", "ordering.coords"}},
                      BadCase{"grid_with_coordinates",
                              [](JobSpec& s) {
                                s = SpecWith({.grid = {8, 8}, .coordinate_axes = 2});
                              },
                              kInvalid,
                              {"ordering.grid [8, 8]", "ordering.coords"}},
                      BadCase{"one_axis",
                              [](JobSpec& s) { s = SpecWith({.coordinate_axes = 1}); },
                              kInvalid,
                              {"ordering.coords_axes is 1", "2 or 3"}},
                      BadCase{"grid_of_one_side",
                              [](JobSpec& s) { s = SpecWith({.grid = {64}}); },
                              kInvalid,
                              {"ordering.grid has 1", "2 or 3"}},
                      BadCase{"grid_of_four_sides",
                              [](JobSpec& s) {
                                s = SpecWith({.grid = {2, 2, 2, 8}});
                              },
                              kInvalid,
                              {"ordering.grid has 4"}},
                      BadCase{"grid_side_zero",
                              [](JobSpec& s) {
                                s = SpecWith({.grid = {64, 0}});
                              },
                              kInvalid,
                              {"ordering.grid[1] is 0"}},
                      BadCase{"grid_of_negative_sides",
                              [](JobSpec& s) {
                                s = SpecWith({.grid = {-8, -8}});
                              },
                              kInvalid,
                              {"ordering.grid[0] is -8"}},
                      BadCase{"grid_of_other_size",
                              [](JobSpec& s) {
                                s = SpecWith({.grid = {8, 9}});
                              },
                              kInvalid,
                              {"ordering.grid [8, 9] has 72 cells", "64"}},
                      BadCase{"grid_that_fits_one_sequence_only",
                              [](JobSpec& s) {
                                s = SpecWith({.grid = {4, 8}}, {32, 16, 16});
                              },
                              kInvalid,
                              {"ordering.grid [4, 8]", "sequence_lengths[1] is 16"}},
                      BadCase{"product_that_overflows_to_zero",
                              [](JobSpec& s) {
                                s = SpecWith({.grid = {int64_t{1} << 32, int64_t{1} << 32}});
                              },
                              kInvalid,
                              {"ordering.grid [4294967296, 4294967296]", "64"}},
                      BadCase{"side_over_the_2d_limit",
                              [](JobSpec& s) {
                                s = SpecWith({.grid = {1, (int64_t{1} << 32) + 1}});
                              },
                              kOver,
                              {"ordering.grid[1] is 4294967297", "4294967296"}},
                      BadCase{"side_over_the_3d_limit",
                              [](JobSpec& s) {
                                s = SpecWith({.grid = {(1 << 21) + 1, 1, 1}});
                              },
                              kOver,
                              {"ordering.grid[0] is 2097153", "2097152"}}),
    [](const auto& info) { return info.param.name; });

TEST(Limits, AServiceMaySetLowerOnes) {
  SpecLimits limits{.max_tokens = 64, .max_heads = 8, .max_branches = 2, .max_sequences = 2};
  JobSpec spec = ValidSpec();
  spec.sequence_lengths = {32, 32};
  EXPECT_TRUE(Validate(spec, limits).ok());
  const auto refuses = [&](SpecLimits lower, const char* words) {
    const absl::Status status = Validate(spec, lower);
    EXPECT_EQ(status.code(), kOver);
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  };
  SpecLimits lower = limits;
  lower.max_tokens = 63;
  refuses(lower, "tokens is 64, which is over the limit of 63");
  lower = limits;
  lower.max_heads = 7;
  refuses(lower, "heads is 8");
  lower = limits;
  lower.max_branches = 1;
  refuses(lower, "branches");
  lower = limits;
  lower.max_sequences = 1;
  refuses(lower, "sequence_lengths");
}

TEST(JobSpec, ProgramsAreToldFieldAndLimit) {
  JobSpec spec = ValidSpec();
  spec.branches = {{16, 1}, {0, 1}};
  EXPECT_EQ(FieldOf(Validate(spec)), (FieldOfError{.field = "segments[1]", .limit = 1}));
  spec.branches.clear();
  EXPECT_EQ(FieldOf(Validate(spec)), (FieldOfError{.field = "segments", .limit = 1}));
  spec = ValidSpec();
  spec.tokens = (int64_t{1} << 40) + 1;
  EXPECT_EQ(FieldOf(Validate(spec)), (FieldOfError{.field = "tokens", .limit = int64_t{1} << 40}));
  spec = ValidSpec();
  spec.head_dim = 9;
  EXPECT_EQ(FieldOf(Validate(spec)), (FieldOfError{.field = "head_dim"}));
  EXPECT_EQ(FieldOf(absl::InvalidArgumentError("of no field")), std::nullopt);
}

TEST(JobSpec, ScaleIsTheInverseRootUnlessGiven) {
  JobSpec spec = ValidSpec();
  EXPECT_DOUBLE_EQ(spec.Scale(), 0.125);
  spec.scale = 0.0;
  EXPECT_EQ(spec.Scale(), 0.0);
}

TEST(JobSpec, SequencesCoverTheTokens) {
  JobSpec spec = ValidSpec();
  auto sequences = Sequences(spec);
  ASSERT_EQ(sequences.size(), 1u);
  EXPECT_EQ(sequences[0].begin, 0);
  EXPECT_EQ(sequences[0].length, 64);
  spec.sequence_lengths = {1, 60, 3};
  sequences = Sequences(spec);
  ASSERT_EQ(sequences.size(), 3u);
  EXPECT_EQ(sequences[2].begin, 61);
  EXPECT_EQ(sequences[2].length, 3);
}

TEST(JobSpec, ElementsTakeTwoOrFourBytes) {
  EXPECT_EQ(ElementBytes(DataType::kFloat32), 4);
  EXPECT_EQ(ElementBytes(DataType::kBFloat16), 2);
  EXPECT_EQ(ElementBytes(DataType::kFloat16), 2);
}

}  // namespace
}  // namespace hilbert_ring
