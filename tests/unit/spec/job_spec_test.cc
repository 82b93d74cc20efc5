#include "engine/spec/job_spec.h"

#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/spec/field_error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr int64_t kMostTokens = int64_t{1} << 40;

JobSpec ValidSpec() {
  JobSpec spec;
  spec.tokens = 64;
  spec.heads = 8;
  spec.kv_heads = 2;
  spec.head_dim = 64;
  spec.value_dim = 32;
  spec.branches = {{16, 1}, {64, 4}};
  return spec;
}

// A valid spec, except for one field.
template <typename T>
JobSpec With(T JobSpec::*field, std::type_identity_t<T> value) {
  JobSpec spec = ValidSpec();
  spec.*field = std::move(value);
  return spec;
}

JobSpec Ordered(Ordering ordering, std::vector<int64_t> lengths = {}) {
  JobSpec spec = With(&JobSpec::ordering, std::move(ordering));
  spec.sequence_lengths = std::move(lengths);
  return spec;
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kOver = absl::StatusCode::kOutOfRange;

// Expects field, value and limit in the message and in FieldOf.
void ExpectRefused(const JobSpec& spec, absl::StatusCode code, const std::string& words) {
  const absl::Status status = Validate(spec);
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  const auto wrong = FieldOf(status);
  ASSERT_TRUE(wrong.has_value()) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(wrong->field.substr(0, 8)));
  if (wrong->limit) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(*wrong->limit)));
  }
}

TEST(BadSpecs, OfShapesAreRefused) {
  ExpectRefused(With(&JobSpec::tokens, 0), kInvalid, "tokens is 0");
  ExpectRefused(With(&JobSpec::tokens, kLeast), kInvalid, "tokens is -9223372036854775808");
  ExpectRefused(With(&JobSpec::tokens, kMostTokens + 1), kOver, "tokens is 1099511627777");
  ExpectRefused(With(&JobSpec::heads, 0), kInvalid, "heads is 0");
  ExpectRefused(With(&JobSpec::heads, 4097), kOver, "heads is 4097");
  ExpectRefused(With(&JobSpec::kv_heads, 0), kInvalid, "kv_heads is 0");
  ExpectRefused(With(&JobSpec::kv_heads, -2), kInvalid, "kv_heads is -2");
  ExpectRefused(With(&JobSpec::kv_heads, 3), kInvalid, "kv_heads is 3");
  ExpectRefused(With(&JobSpec::kv_heads, 16), kInvalid, "kv_heads is 16");
  ExpectRefused(With(&JobSpec::head_dim, 0), kInvalid, "head_dim is 0");
  ExpectRefused(With(&JobSpec::head_dim, 60), kInvalid, "8 to 256 in steps of 8");
  ExpectRefused(With(&JobSpec::head_dim, 264), kInvalid, "head_dim is 264");
  ExpectRefused(With(&JobSpec::value_dim, -8), kInvalid, "value_dim is -8");
  ExpectRefused(With(&JobSpec::value_dim, kMost), kInvalid, "value_dim is 9223372036854775807");
}

TEST(BadSpecs, OfPatternsAreRefused) {
  const auto branches = &JobSpec::branches;
  ExpectRefused(With(branches, {}), kInvalid, "segments");
  ExpectRefused(With(branches, std::vector<Branch>(65, {8, 1})), kOver, "65");
  ExpectRefused(With(branches, {{16, 1}, {0, 4}}), kInvalid, "segments[1] is 0");
  ExpectRefused(With(branches, {{kMost, 1}}), kOver, "segments[0] is 9223372036854775807");
  ExpectRefused(With(branches, {{16, 0}}), kInvalid, "dilations[0] is 0");
  ExpectRefused(With(branches, {{16, 1}, {64, -1}}), kInvalid, "dilations[1] is -1");
  ExpectRefused(With(branches, {{16, kMost}}), kOver, "dilations[0] is 9223372036854775807");
  ExpectRefused(With(&JobSpec::scale, std::nan("")), kInvalid, "scale is nan");
  ExpectRefused(With(&JobSpec::scale, 1e39), kInvalid, "scale is 1e+39");
  ExpectRefused(With(&JobSpec::scale, -HUGE_VAL), kInvalid, "scale is -inf");
}

TEST(BadSpecs, OfSequencesAreRefused) {
  const auto lengths = &JobSpec::sequence_lengths;
  ExpectRefused(With(lengths, {64, -1}), kInvalid, "sequence_lengths[1] is -1");
  ExpectRefused(With(lengths, {65, -1}), kInvalid, "sequence_lengths[0] is 65");
  ExpectRefused(With(lengths, {32, 31}), kInvalid, "sequence_lengths add up to 63");
  ExpectRefused(With(lengths, {32, 33}), kInvalid, "sequence_lengths[1] is 33");
  // The sum overflows to the tokens.
  ExpectRefused(With(lengths, {kMost, kMost, 66}), kInvalid,
                "sequence_lengths[0] is 9223372036854775807");
  JobSpec many = With(lengths, std::vector<int64_t>((1 << 20) + 1, 1));
  many.tokens = (1 << 20) + 1;
  ExpectRefused(many, kOver, "sequence_lengths is 1048577");
}

// A job of a dense branch with this number of keys.
JobSpec Rectangle(int64_t keys, std::vector<int64_t> lengths = {},
                  std::vector<int64_t> key_lengths = {}) {
  JobSpec spec = With(&JobSpec::key_tokens, keys);
  spec.branches = {{100, 1}};
  spec.sequence_lengths = std::move(lengths);
  spec.key_sequence_lengths = std::move(key_lengths);
  return spec;
}

TEST(BadSpecs, OfKeysOfAnotherNumberAreRefused) {
  ExpectRefused(Rectangle(-1), kInvalid, "key_tokens is -1, must be at least 0");
  ExpectRefused(Rectangle(kMostTokens + 1), kOver, "key_tokens is 1099511627777");
  ExpectRefused(Rectangle(70, {}, {69}), kInvalid,
                "key_sequence_lengths add up to 69, but key_tokens is 70");
  ExpectRefused(Rectangle(70, {}, {35, 35}), kInvalid,
                "key_sequence_lengths has 2 entries, must have as many as sequence_lengths: 0");
  ExpectRefused(Rectangle(70, {32, 32}), kInvalid, "key_sequence_lengths has 0 entries");
  JobSpec more = Rectangle(9);
  more.ordering.emplace();
  ExpectRefused(more, kInvalid, "tokens is 64 with key_tokens 9, ordering must be absent");
  JobSpec start = Rectangle(128, {60, 4}, {60, 68});
  start.align = Align::kStart;
  start.branches[0].dilation = 2;
  ExpectRefused(start, kInvalid,
                "align is start with 4 queries and 68 keys, dilations[0] is 2, must be 1");
  start.branches = {{68, 1}, {67, 1}};
  ExpectRefused(start, kInvalid, "segments[1] is 67, must be at least the keys");
  JobSpec grid = Rectangle(72, {64});
  grid.ordering = Ordering{.grid = {8, 8}};
  ExpectRefused(grid, kInvalid, "ordering.grid [8, 8] has 64 cells, but key_tokens is 72");
}

TEST(ValidSpecs, HaveKeysOfAnotherNumber) {
  JobSpec last_rows = Rectangle(72, {64});
  last_rows.branches = ValidSpec().branches;
  last_rows.ordering = Ordering{.grid = {8, 9}};
  JobSpec start = Rectangle(70);
  start.align = Align::kStart;
  for (const JobSpec& spec :
       {last_rows, start, Rectangle(0), Rectangle(9), Rectangle(kMostTokens),
        Rectangle(9, {0, 64, 0}, {9, 0, 0}), Rectangle(64, {64, 0}, {1, 63})}) {
    EXPECT_TRUE(Validate(spec).ok()) << Validate(spec);
  }
}

TEST(BadSpecs, OfOrderingsAreRefused) {
  ExpectRefused(Ordered({.window = -1}), kInvalid, "ordering.window is -1");
  ExpectRefused(Ordered({.window = 16, .grid = {8, 8}}), kInvalid, "ordering.window is 16");
  ExpectRefused(Ordered({.window = 16, .coordinate_axes = 2}), kInvalid, "ordering.coords");
  ExpectRefused(Ordered({.grid = {8, 8}, .coordinate_axes = 2}), kInvalid, "ordering.grid [8, 8]");
  ExpectRefused(Ordered({.coordinate_axes = 1}), kInvalid, "ordering.coords_axes is 1");
  ExpectRefused(Ordered({.grid = {64}}), kInvalid, "ordering.grid has 1");
  ExpectRefused(Ordered({.grid = {2, 2, 2, 8}}), kInvalid, "ordering.grid has 4");
  ExpectRefused(Ordered({.grid = {64, 0}}), kInvalid, "ordering.grid[1] is 0");
  ExpectRefused(Ordered({.grid = {-8, -8}}), kInvalid, "ordering.grid[0] is -8");
  ExpectRefused(Ordered({.grid = {8, 9}}), kInvalid, "ordering.grid [8, 9] has 72 cells");
  ExpectRefused(Ordered({.grid = {4, 8}}, {32, 16, 16}), kInvalid, "sequence_lengths[1] is 16");
  const int64_t most = int64_t{1} << 32;  // its square overflows to 0
  ExpectRefused(Ordered({.grid = {most, most}}), kInvalid, "ordering.grid [4294967296, ");
  ExpectRefused(Ordered({.grid = {1, most + 1}}), kOver, "ordering.grid[1] is 4294967297");
  ExpectRefused(Ordered({.grid = {(1 << 21) + 1, 1, 1}}), kOver, "ordering.grid[0] is 2097153");
}

JobSpec Windowed(Window window) {
  JobSpec spec = With(&JobSpec::window, window);
  spec.branches = {{16, 1}, {64, 1}};
  return spec;
}

TEST(BadSpecs, OfWindowsAreRefused) {
  ExpectRefused(Windowed({.left = -1}), kInvalid, "window[0] is -1, must be at least 0");
  ExpectRefused(Windowed({.left = 0, .right = kLeast}), kInvalid, "window[1] is -9223372036854775");
  ExpectRefused(With(&JobSpec::window, Window{.left = 3}), kInvalid,
                "window is [3, null], must be absent with dilations[1] 4");
  JobSpec ordered = Windowed({.right = 0});
  ordered.ordering.emplace();
  ExpectRefused(ordered, kInvalid, "window is [null, 0], must be absent with ordering");
  JobSpec zero = Windowed({.left = 3, .right = 5});
  zero.tail = Tail::kZero;
  zero.causal = true;  // has no zero keys
  ExpectRefused(zero, kInvalid, "window is [3, 5], must be absent with tail zero");
}

TEST(BadSpecs, OfScoresAreRefused) {
  for (const double cap : {0.0, -1.0, 1e-50, 1e39, std::nan(""), HUGE_VAL}) {
    ExpectRefused(With(&JobSpec::softcap, cap), kInvalid, "softcap is ");
  }
  const auto sinks = &JobSpec::sinks;
  ExpectRefused(With(sinks, {0}), kInvalid, "sinks has 1 entries, must have 8");
  ExpectRefused(With(sinks, {0, 0, 0, 0, 0, 0, 0, -HUGE_VAL}), kInvalid, "sinks[7] is -inf");
  const auto alibi = [](std::vector<double> slopes) {
    return With(&JobSpec::alibi, Alibi{std::move(slopes)});
  };
  ExpectRefused(alibi({}), kInvalid, "alibi.slopes has 0 entries, must have 8");
  ExpectRefused(alibi(std::vector<double>(9)), kInvalid, "alibi.slopes has 9 entries");
  ExpectRefused(alibi({1, 1e39, 0, 0, 0, 0, 0, 0}), kInvalid, "alibi.slopes[1] is 1e+39");
  JobSpec zero = alibi(std::vector<double>(8));
  zero.tail = Tail::kZero;
  ExpectRefused(zero, kInvalid, "alibi is given, must be absent with tail zero");
}

TEST(WrongSpecs, BiasesOfCoordinates) {
  JobSpec spec = With(&JobSpec::alibi, Alibi{std::vector<double>(8), 2});
  for (const int axes : {1, 4, -1}) {
    spec.alibi->coordinate_axes = axes;
    ExpectRefused(spec, kInvalid, "alibi.axes is ");
  }
  spec.alibi->coordinate_axes = 3;
  spec.branches = {{int64_t{1} << 40, 1}};
  spec.key_tokens = spec.tokens - 1;
  ExpectRefused(spec, kInvalid, "alibi.distance is coords with key_tokens 63 and tokens 64");
  spec.key_tokens = 0;
  ExpectRefused(spec, kInvalid, "alibi.distance is coords with key_tokens 0 and tokens 64");
  spec.key_tokens = spec.tokens + 1;
  EXPECT_TRUE(Validate(spec).ok()) << Validate(spec);
  spec.align = Align::kStart;
  ExpectRefused(spec, kInvalid, "alibi.distance is coords with align start");
  spec.key_tokens.reset();
  EXPECT_TRUE(Validate(spec).ok()) << Validate(spec);
  spec.tail = Tail::kZero;
  ExpectRefused(spec, kInvalid, "alibi is given, must be absent with tail zero");
}

// Values at the limits.
TEST(ValidSpecs, AreAccepted) {
  std::vector<JobSpec> specs = {ValidSpec(),
                                With(&JobSpec::tokens, 1),
                                With(&JobSpec::tokens, kMostTokens),
                                With(&JobSpec::branches, std::vector<Branch>(64, {8, 2})),
                                With(&JobSpec::branches, {{int64_t{1} << 62, int64_t{1} << 62}}),
                                With(&JobSpec::scale, 0.0),
                                With(&JobSpec::scale, -0.5),
                                With(&JobSpec::head_dim, 8),
                                With(&JobSpec::head_dim, 256),
                                With(&JobSpec::sequence_lengths, {1, 62, 1}),
                                Windowed({.left = 0, .right = kMost}),
                                With(&JobSpec::softcap, 1e-40),
                                With(&JobSpec::sinks, {-1, 0, 1, 3e38, 0, 0, 0, 0}),
                                With(&JobSpec::alibi, Alibi{{-1, 0, 1, 3e38, 0, 0, 0, 0}}),
                                Ordered({}),
                                Ordered({.window = kMost}),
                                Ordered({.grid = {1, 64}}),
                                Ordered({.grid = {4, 8, 2}}),
                                Ordered({.grid = {8, 4}}, {32, 32}),
                                Ordered({.coordinate_axes = 3}),
                                Ordered({.grid = {int64_t{1} << 21, 1, 1}}),
                                Ordered({.grid = {2, int64_t{1} << 32}})};
  specs.end()[-2].tokens = int64_t{1} << 21;
  specs.end()[-1].tokens = int64_t{1} << 33;
  JobSpec unbounded = Ordered({});
  unbounded.tail = Tail::kZero;
  unbounded.window.emplace();
  specs.push_back(unbounded);
  for (const JobSpec& spec : specs) EXPECT_TRUE(Validate(spec).ok()) << Validate(spec);
}

TEST(Limits, AServiceMaySetLowerOnes) {
  JobSpec spec = ValidSpec();
  spec.sequence_lengths = {32, 32};
  const SpecLimits limits{.max_tokens = 64, .max_heads = 8, .max_branches = 2, .max_sequences = 2};
  EXPECT_TRUE(Validate(spec, limits).ok());
  for (const auto& [limit, words] :
       {std::pair{&SpecLimits::max_tokens, "tokens is 64, must be at most 63"},
        {&SpecLimits::max_heads, "heads is 8"},
        {&SpecLimits::max_branches, "branches"},
        {&SpecLimits::max_sequences, "sequence_lengths"}}) {
    SpecLimits lower = limits;
    --(lower.*limit);
    EXPECT_EQ(Validate(spec, lower).code(), kOver);
    EXPECT_THAT(std::string(Validate(spec, lower).message()), HasSubstr(words));
  }
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

}  // namespace
}  // namespace hilbert_ring
