#include "engine/spec/spec_notes.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

JobSpec Dense() {
  JobSpec spec{.tokens = 64, .heads = 4, .kv_heads = 4, .head_dim = 8, .value_dim = 8};
  spec.branches = {{16, 1}, {64, 4}};
  return spec;
}

TEST(SpecNotes, AnOrdinarySpecHasNone) { EXPECT_THAT(NotesOn(Dense()), IsEmpty()); }

TEST(SpecNotes, TheImplicitSquareIsNamedUnlessAnotherPlaceIsGiven) {
  JobSpec spec = Dense();
  spec.ordering.emplace();
  EXPECT_THAT(NotesOn(spec), ElementsAre(AllOf(HasSubstr("ordering: "), HasSubstr("square"))));
  spec.ordering->window = 16;
  EXPECT_THAT(NotesOn(spec), IsEmpty());
  spec.ordering = Ordering{.grid = {8, 8}};
  EXPECT_THAT(NotesOn(spec), IsEmpty());
  spec.ordering = Ordering{.coordinate_axes = 2};
  EXPECT_THAT(NotesOn(spec), IsEmpty());
}

TEST(SpecNotes, BranchesWithoutAHead) {
  JobSpec spec = Dense();
  spec.heads = spec.kv_heads = 1;
  EXPECT_THAT(NotesOn(spec),
              ElementsAre(AllOf(HasSubstr("2 branches for 1 head:"), HasSubstr("from branch 1 on"),
                                HasSubstr("still divided by 2"))));
  spec.average_groups = false;
  EXPECT_THAT(NotesOn(spec), ElementsAre(testing::Not(HasSubstr("divided"))));
  spec.mixing = Mixing::kLse;
  EXPECT_THAT(NotesOn(spec), IsEmpty());
}

TEST(SpecNotes, DilationAboveItsSegment) {
  JobSpec spec = Dense();
  spec.branches = {{16, 16}, {16, 17}};
  EXPECT_THAT(NotesOn(spec), ElementsAre(AllOf(HasSubstr("dilations[1]: 17"), HasSubstr("16"))));
  // A segment is at most as long as its sequence.
  spec.branches = {{1000, 65}};
  EXPECT_THAT(NotesOn(spec), ElementsAre(HasSubstr("segment of 64 (the longest sequence)")));
  spec.sequence_lengths = {24, 40};
  spec.branches = {{1000, 41}, {1000, 40}};
  EXPECT_THAT(NotesOn(spec), ElementsAre(HasSubstr("dilations[0]: 41")));
}

TEST(SpecNotes, ZeroKeysOfACausalJob) {
  JobSpec spec = Dense();
  spec.tail = Tail::kZero;
  EXPECT_THAT(NotesOn(spec), IsEmpty());
  spec.causal = true;
  EXPECT_THAT(NotesOn(spec), ElementsAre(HasSubstr("tail: zero")));
}

}  // namespace
}  // namespace hilbert_ring
