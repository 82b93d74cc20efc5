#include <string>

#include "engine/spec/job_spec_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kPattern[] = R"({"segments": [4], "dilations": [1]})";

std::string Ordered(const std::string& ordering) {
  return R"({"segments": [4], "dilations": [1], "ordering": )" + ordering + "}";
}

JobSpecDocument Parsed(const std::string& json, const std::string& patch) {
  const auto document = ParsePartialJobSpec(json, patch);
  EXPECT_TRUE(document.ok()) << document.status();
  return document.value_or(JobSpecDocument{});
}

std::string Failure(const std::string& json, const std::string& patch) {
  const auto document = ParsePartialJobSpec(json, patch);
  EXPECT_EQ(document.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(document.status().message());
}

TEST(ParsePartialJobSpec, SaysWhichOfTheShapeIsGiven) {
  const JobSpecDocument none = Parsed(kPattern, "{}");
  EXPECT_FALSE(none.given.tokens || none.given.heads || none.given.kv_heads ||
               none.given.head_dim || none.given.value_dim || none.given.dtype);
  EXPECT_EQ(none.spec.tokens, 0);
  const JobSpecDocument some = Parsed(
      R"({"segments": [4], "dilations": [1], "heads": 6, "kv_heads": null, "dtype": "float16"})",
      R"({"head_dim": 16})");
  EXPECT_EQ(some.given.heads, 6);
  EXPECT_FALSE(some.given.kv_heads.has_value());
  EXPECT_EQ(some.given.head_dim, 16);
  EXPECT_EQ(some.given.dtype, DataType::kFloat16);
  EXPECT_EQ(some.spec.kv_heads, 6);
  EXPECT_EQ(some.spec.value_dim, 16);
}

TEST(ParsePartialJobSpec, PatchesReplaceFields) {
  const JobSpecDocument document = Parsed(
      R"({"segments": [4, 8], "dilations": [1, 2], "tokens": 64, "causal": true, "scale": 0.5})",
      R"({"segments": [16], "dilations": [3], "tokens": 65, "mixing": "lse", "scale": null})");
  EXPECT_THAT(document.spec.branches, ElementsAre(Branch{16, 3}));
  EXPECT_EQ(document.given.tokens, 65);
  EXPECT_EQ(document.spec.mixing, Mixing::kLse);
  EXPECT_TRUE(document.spec.causal);
  EXPECT_FALSE(document.spec.scale.has_value());
}

TEST(ParsePartialJobSpec, PatchesReplaceListsAsAWhole) {
  const JobSpecDocument document = Parsed(R"({"segments": [4], "dilations": [1], "window": [3, 5],
                 "alibi": {"slopes": [1, 2], "distance": "tokens"}})",
                                          R"({"window": [null, 1], "alibi": {"slopes": [0.5]}})");
  EXPECT_EQ(document.spec.window, Window{.right = 1});
  EXPECT_EQ(document.spec.alibi, Alibi{.slopes = {0.5}});
}

TEST(ParsePartialJobSpec, WhereTokensLieIsReplacedAsAWhole) {
  const std::string grid = Ordered(R"({"curve": "morton", "scope": "kv", "grid": [2, 2]})");
  const JobSpecDocument window = Parsed(grid, R"({"ordering": {"window": 8}})");
  EXPECT_EQ(window.spec.ordering,
            (Ordering{.curve = Curve::kMorton, .scope = OrderScope::kKv, .window = 8}));
  const JobSpecDocument file = Parsed(grid, R"({"ordering": {"coords_file": "c.npy"}})");
  EXPECT_EQ(file.coords_file, "c.npy");
  EXPECT_THAT(file.spec.ordering->grid, IsEmpty());
  const JobSpecDocument again = Parsed(Ordered(R"({"curve": "hilbert", "coords": [[1, 2, 3]]})"),
                                       R"({"ordering": {"grid": [4]}})");
  EXPECT_THAT(again.coords, IsEmpty());
  EXPECT_EQ(again.spec.ordering->coordinate_axes, 0);
  EXPECT_THAT(again.spec.ordering->grid, ElementsAre(4));
  const JobSpecDocument axes =
      Parsed(Ordered(R"({"curve": "hilbert", "coords_file": "c.npy", "coords_axes": 3})"),
             R"({"ordering": {"coords_file": "d.npy"}})");
  EXPECT_EQ(axes.coords_file, "d.npy");
  EXPECT_FALSE(axes.coords_axes.has_value());
}

TEST(ParsePartialJobSpec, OtherFieldsOfAnOrderingLeaveWhereTokensLie) {
  const JobSpecDocument document = Parsed(Ordered(R"({"curve": "hilbert", "grid": [2, 2]})"),
                                          R"({"ordering": {"curve": "morton", "scope": "kv"}})");
  EXPECT_EQ(document.spec.ordering,
            (Ordering{.curve = Curve::kMorton, .scope = OrderScope::kKv, .grid = {2, 2}}));
  EXPECT_FALSE(Parsed(Ordered(R"({"curve": "hilbert"})"), R"({"ordering": null})").spec.ordering);
}

TEST(ParsePartialJobSpec, AnOrderingOutOfNothingNeedsItsCurve) {
  for (const char* json : {kPattern, R"({"segments": [4], "dilations": [1], "ordering": null})"}) {
    EXPECT_THAT(Failure(json, R"({"ordering": {"coords_file": "c.npy"}})"),
                HasSubstr("ordering.coords_file is given, but the job has no ordering"));
    EXPECT_TRUE(Parsed(json, R"({"ordering": {"curve": "hilbert"}})").spec.ordering.has_value());
  }
}

}  // namespace
}  // namespace hilbert_ring
