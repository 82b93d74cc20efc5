// Specs at the ends of what is right.
#include "tests/unit/spec/valid_spec.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <ostream>
#include <string>

#include "engine/spec/job_spec.h"
#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

struct ValidCase {
  std::string name;
  std::function<void(JobSpec&)> change;
};

std::ostream& operator<<(std::ostream& out, const ValidCase& c) { return out << c.name; }

class ValidSpecs : public ::testing::TestWithParam<ValidCase> {};

TEST_P(ValidSpecs, AreAccepted) {
  JobSpec spec = ValidSpec();
  GetParam().change(spec);
  EXPECT_TRUE(Validate(spec).ok()) << Validate(spec);
}

INSTANTIATE_TEST_SUITE_P(
    Spec, ValidSpecs,
    ::testing::Values(
        ValidCase{"plain", [](JobSpec&) {}},
        ValidCase{"one_token", [](JobSpec& s) { s.tokens = 1; }},
        ValidCase{"most_tokens", [](JobSpec& s) { s.tokens = SpecLimits().max_tokens; }},
        ValidCase{"more_branches_than_heads",
                  [](JobSpec& s) {
                    s.heads = s.kv_heads = 1;
                    s.branches.assign(64, {8, 2});
                  }},
        ValidCase{"longest_branch",
                  [](JobSpec& s) {
                    s.branches = {{int64_t{1} << 62, int64_t{1} << 62}};
                  }},
        ValidCase{"zero_scale", [](JobSpec& s) { s.scale = 0.0; }},
        ValidCase{"negative_scale", [](JobSpec& s) { s.scale = -0.5; }},
        ValidCase{"smallest_dims", [](JobSpec& s) { s.head_dim = s.value_dim = 8; }},
        ValidCase{"largest_dims", [](JobSpec& s) { s.head_dim = s.value_dim = 256; }},
        ValidCase{"sequences",
                  [](JobSpec& s) {
                    s.sequence_lengths = {1, 62, 1};
                  }},
        ValidCase{"square", [](JobSpec& s) { s.ordering = Ordering{}; }},
        ValidCase{"window", [](JobSpec& s) { s.ordering = Ordering{.window = 5}; }},
        ValidCase{"longest_window", [](JobSpec& s) { s.ordering = Ordering{.window = kMost}; }},
        ValidCase{"grid",
                  [](JobSpec& s) {
                    s.ordering = Ordering{.grid = {1, 64}};
                  }},
        ValidCase{"volume",
                  [](JobSpec& s) {
                    s.ordering = Ordering{.grid = {4, 8, 2}};
                  }},
        ValidCase{"grid_of_each_sequence",
                  [](JobSpec& s) {
                    s.ordering = Ordering{.grid = {8, 4}};
                    s.sequence_lengths = {32, 32};
                  }},
        ValidCase{"largest_3d_grid_side",
                  [](JobSpec& s) {
                    s.tokens = int64_t{1} << 21;
                    s.ordering = Ordering{.grid = {int64_t{1} << 21, 1, 1}};
                  }},
        ValidCase{"largest_2d_grid_side",
                  [](JobSpec& s) {
                    s.tokens = int64_t{1} << 33;
                    s.ordering = Ordering{.grid = {2, int64_t{1} << 32}};
                  }},
        ValidCase{"coordinates", [](JobSpec& s) { s.ordering = Ordering{.coordinate_axes = 3}; }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hilbert_ring
