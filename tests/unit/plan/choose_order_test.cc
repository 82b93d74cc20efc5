#include "engine/plan/choose_order.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/plain_spec.h"

namespace hilbert_ring {
namespace {

using ::testing::HasSubstr;

// 64 x 64 tokens, segments of four rows.
JobSpec OnAGrid() {
  JobSpec spec = PlainSpec({.tokens = 4096});
  spec.branches = {{.segment = 256}};
  spec.ordering = Ordering{.grid = {64, 64}};
  return spec;
}

OrderChoice Choose(const JobSpec& spec) {
  const auto choice = ChooseOrder(spec);
  EXPECT_TRUE(choice.ok()) << choice.status();
  return choice.ok() ? *choice : OrderChoice{};
}

TEST(ChooseOrder, OfPlansThatCostTheSameTheMostCompactSegments) {
  const OrderChoice choice = Choose(OnAGrid());
  EXPECT_EQ(choice.curve, Curve::kHilbert);
  // Squares of 16 x 16 instead of strips of 4 x 64.
  EXPECT_THAT(choice.why, HasSubstr("radius 6.5 cells, 18.5 as tokens come"));
  JobSpec volume = OnAGrid();
  volume.ordering->grid = {16, 16, 16};
  EXPECT_TRUE(Choose(volume).curve.has_value());
  JobSpec few = OnAGrid();  // the keys are on the grid
  few.key_tokens = few.tokens;
  few.tokens = 8;
  EXPECT_EQ(Choose(few).curve, Curve::kHilbert);
  JobSpec column = OnAGrid();  // a curve brings nothing nearer
  column.ordering->grid = {4096, 1};
  EXPECT_EQ(Choose(column).curve, std::nullopt);
}

TEST(ChooseOrder, OfOtherPlansTheCheapest) {
  JobSpec causal = OnAGrid();
  causal.causal = true;
  const OrderChoice choice = Choose(causal);
  EXPECT_EQ(choice.curve, std::nullopt) << "along a curve the mask is no triangle";
  EXPECT_THAT(choice.why, HasSubstr("flop in their own order and"));
}

TEST(ChooseOrder, WhereTokensHaveNoPlaceOrSegmentsNoBoundsTheyStay) {
  JobSpec placeless = OnAGrid();
  placeless.ordering->grid.clear();
  EXPECT_EQ(Choose(placeless).curve, std::nullopt);
  EXPECT_THAT(Choose(placeless).why, HasSubstr("neither a grid nor coordinates"));
  JobSpec full = OnAGrid();
  full.branches = {{.segment = 5000}};
  EXPECT_EQ(Choose(full).curve, std::nullopt);
  JobSpec slide = placeless;
  slide.ordering->coordinate_axes = 2;
  EXPECT_EQ(Choose(slide).curve, Curve::kHilbert);
}

}  // namespace
}  // namespace hilbert_ring
