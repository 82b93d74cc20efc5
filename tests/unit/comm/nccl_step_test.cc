#include "engine/comm/nccl_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace hilbert_ring {
namespace {

using ::testing::HasSubstr;
using Direction = NcclTransfer::Direction;

class StepNotesTest : public ::testing::Test {
 protected:
  static constexpr int kSize = 3;

  // Puts a peer's note into the place of received notes.
  void Arrive(int peer, const StepNote& note) {
    std::memcpy(host_.data() + notes_.received_offset() + peer * sizeof(StepNote), &note,
                sizeof(note));
  }

  static StepNote Note(int64_t step, const std::vector<int64_t>& sizes) {
    StepNote note{.step = step};
    for (const int64_t bytes : sizes) note.Add(bytes);
    return note;
  }

  std::vector<std::byte> host_ = std::vector<std::byte>(StepNotes::BytesFor(kSize));
  std::vector<std::byte> device_ = std::vector<std::byte>(StepNotes::BytesFor(kSize));
  StepNotes notes_{{host_.data(), device_.data()}, kSize};
  char a_ = 0, b_ = 0, c_ = 0, d_ = 0;
};

TEST_F(StepNotesTest, NotesMustAgreeOnStepOrderAndSize) {
  const CommStep step{
      .number = 7,
      .receives = {{.peer = 1, .data = &a_, .bytes = 10}, {.peer = 1, .data = &b_, .bytes = 20}}};
  const auto verify = [&](const StepNote& note) {
    notes_.MakeGroup(step);
    Arrive(1, note);
    return notes_.Verify();
  };
  EXPECT_TRUE(verify(Note(7, {10, 20})).ok());
  for (const StepNote& other : {Note(6, {10, 20}), Note(7, {20, 10}), Note(7, {15, 15}),
                                Note(7, {10, 20, 0}), Note(7, {30}), StepNote{}}) {
    const absl::Status status = verify(other);
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("rank 1 sent"));
  }
  EXPECT_THAT(verify(Note(6, {10, 20})).message(), HasSubstr("step 6"));
}

TEST_F(StepNotesTest, NotesOfAnEarlierStepDoNotStay) {
  const CommStep step{.number = 7, .receives = {{.peer = 1, .data = &a_, .bytes = 10}}};
  notes_.MakeGroup(step);
  Arrive(1, Note(7, {10}));
  notes_.MakeGroup(step);
  EXPECT_TRUE(absl::IsDataLoss(notes_.Verify()));
}

TEST(PeersOfTest, NamesThoseThatBytesMoveBetween) {
  char byte = 0;
  EXPECT_EQ(PeersOf({.sends = {{.peer = 3, .data = &byte, .bytes = 1}, {.peer = 5}}}), "rank 3");
  EXPECT_EQ(PeersOf({.sends = {{.peer = 3, .data = &byte, .bytes = 1}},
                     .receives = {{.peer = 3, .data = &byte, .bytes = 1},
                                  {.peer = 0, .data = &byte, .bytes = 1}}}),
            "ranks 0, 3");
}

}  // namespace
}  // namespace hilbert_ring
