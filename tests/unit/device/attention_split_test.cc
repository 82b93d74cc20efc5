// The split of tasks between a library and kernels that only advance a clock.
#include "engine/device/cuda/attention_split.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring::cuda {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

alignas(64) uint16_t memory[1024];
float lse_memory[64];

AttentionTask Task(int64_t rows, int64_t batch = 1) {
  AttentionTask task;
  task.dtype = task.out_dtype = DataType::kBFloat16;
  task.batch = batch;
  task.query_rows = task.key_rows = rows;
  task.head_dim = task.value_dim = 64;
  task.q = task.k = task.v = {memory, 64 * rows, 64, 64};
  task.out = {memory, 64 * rows, 64, 64};
  task.lse = {lse_memory, rows, 1, 1};
  return task;
}

int64_t Scores(const AttentionTask& task) {
  return task.batch * task.heads * task.query_rows * task.key_rows;
}

// Advances the clock by seconds_of_score for each score.
class Library : public LibraryAttention {
 public:
  explicit Library(double& clock) : clock_(clock) {}
  std::string name() const override { return "library"; }
  absl::StatusOr<int64_t> Attend(const AttentionTask& task, void*) override {
    if (!error.ok()) return error;
    if (!takes || task.query_rows == refused_rows) return 0;
    rows.push_back(task.query_rows);
    doubts.push_back(task.query_rows == doubted_rows);
    scores += Scores(task);
    const double slow = static_cast<int>(rows.size()) == slow_call ? 100 : 1;
    clock_ += slow * seconds_of_score * static_cast<double>(Scores(task));
    return Scores(task);
  }

  std::string Refusal() const override { return "no engine"; }

  std::vector<bool> Doubts() override { return std::exchange(doubts, {}); }

  bool takes = true;
  int64_t doubted_rows = -1, refused_rows = -1;
  std::vector<bool> doubts;
  double seconds_of_score = 1;
  int slow_call = 0;  // counted from 1
  absl::Status error;
  std::vector<int64_t> rows;
  int64_t scores = 0;

 private:
  double& clock_;
};

class AttentionSplitTest : public testing::Test {
 protected:
  AttentionSplit Split(AttentionSplitOptions options = {}) {
    return AttentionSplit(
        options, library_,
        [this](std::span<const AttentionTask> tasks, const AttendControl& control,
               int64_t& scores) {
          for (const AttentionTask& task : tasks) {
            native_rows_.push_back(task.query_rows);
            clock_ += static_cast<double>(Scores(task));
            scores += Scores(task);
            if (control.progress) control.progress(Scores(task));
          }
          return absl::OkStatus();
        },
        [this] {
          ++awaited_;
          return absl::OkStatus();
        },
        [this] { return clock_; });
  }

  int64_t Attend(AttentionSplit& split, const std::vector<AttentionTask>& tasks) {
    int64_t reported = 0;
    const AttendControl control{.progress = [&](int64_t more) { reported += more; }};
    figures_ = {};
    EXPECT_TRUE(split.Attend(tasks, control, nullptr, figures_).ok());
    EXPECT_EQ(reported, figures_.scores);
    return figures_.scores;
  }

  void Forget() {
    library_.rows.clear();
    native_rows_.clear();
  }

  double clock_ = 0;
  Library library_{clock_};
  std::vector<int64_t> native_rows_;
  AttendFigures figures_;  // of the last Attend
  int awaited_ = 0;
};

// A shape is tried after 10 tasks of 100 rows, with a whole task.
AttentionSplitOptions Soon() { return {.worth_scores = 1e5, .trial_scores = 1e4}; }

TEST_F(AttentionSplitTest, TheLibraryThatIsWantedGetsAllThatItTakes) {
  AttentionSplit split = Split({.wanted = AttentionKernel::kCudnn});
  AttentionTask merged = Task(30);
  merged.result = Result::kMerge;
  merged.out_dtype = DataType::kFloat32;
  EXPECT_EQ(Attend(split, {Task(10), merged, Task(20)}), 100 + 900 + 400);
  EXPECT_THAT(library_.rows, ElementsAre(10, 20));
  EXPECT_THAT(native_rows_, ElementsAre(30));
  EXPECT_EQ(figures_.library_scores, 100 + 400);
  EXPECT_EQ(figures_.library_refusal, "") << "a merged task does not suit it";
  library_.refused_rows = 20;  // the library has no engine for the shape
  Forget();
  EXPECT_EQ(Attend(split, {Task(10), Task(20), Task(10)}), 100 + 400 + 100);
  EXPECT_THAT(native_rows_, ElementsAre(20));
  EXPECT_EQ(figures_.library_scores, 200);
  EXPECT_EQ(figures_.library_refusal, "no engine");
}

TEST_F(AttentionSplitTest, WhatIsInDoubtIsComputedAgainByUs) {
  AttentionSplit split = Split({.wanted = AttentionKernel::kCudnn, .flight_scores = 1000});
  library_.doubted_rows = 20;
  EXPECT_EQ(Attend(split, {Task(10), Task(20), Task(30), Task(20), Task(10)}),
            100 + 400 + 900 + 400 + 100)
      << "each is counted once";
  EXPECT_THAT(library_.rows, ElementsAre(10, 20, 30, 20, 10));
  EXPECT_THAT(native_rows_, ElementsAre(20, 20));
  EXPECT_EQ(figures_.library_scores, 100 + 900 + 100);
}

TEST_F(AttentionSplitTest, FewEnoughTasksAreInFlight) {
  AttentionSplit split = Split({.wanted = AttentionKernel::kCudnn});
  EXPECT_EQ(Attend(split, std::vector<AttentionTask>(2 * kMostLibraryTasks + 1, Task(1))),
            2 * kMostLibraryTasks + 1);
  EXPECT_EQ(awaited_, 3);
}

TEST_F(AttentionSplitTest, AShapeIsOursUntilItIsWorthATrial) {
  AttentionSplit split = Split(Soon());
  library_.seconds_of_score = 0.5;
  for (int i = 0; i < 9; ++i) EXPECT_EQ(Attend(split, {Task(100)}), 10'000);
  EXPECT_THAT(library_.rows, IsEmpty());
  Forget();
  EXPECT_EQ(Attend(split, {Task(100), Task(99)}), 10'000 + 99 * 99);
  // A call warms up, and three are timed. Then come the task, and a task of another shape.
  EXPECT_THAT(library_.rows, ElementsAre(100, 100, 100, 100, 100));
  EXPECT_THAT(native_rows_, ElementsAre(100, 100, 100, 100, 99));
  Forget();
  EXPECT_EQ(Attend(split, {Task(100)}), 10'000);
  EXPECT_THAT(library_.rows, ElementsAre(100));
  EXPECT_THAT(native_rows_, IsEmpty());
}

TEST_F(AttentionSplitTest, TheFasterOneGetsTheShape) {
  AttentionSplit split = Split(Soon());
  library_.seconds_of_score = 2;
  EXPECT_EQ(Attend(split, {Task(100, 10)}), 100'000);
  EXPECT_EQ(library_.scores, 4 * 10'000);  // of the trial
  Forget();
  EXPECT_EQ(Attend(split, {Task(100, 10)}), 100'000);
  EXPECT_THAT(library_.rows, IsEmpty());
  EXPECT_THAT(native_rows_, ElementsAre(100));
}

TEST_F(AttentionSplitTest, WithoutAnEngineAShapeIsOurs) {
  AttentionSplit split = Split(Soon());
  library_.takes = false;
  library_.seconds_of_score = 0.1;
  EXPECT_EQ(Attend(split, {Task(100, 10)}), 100'000);
  EXPECT_EQ(figures_.library_refusal, "no engine");
  library_.takes = true;  // the split does not try it again
  EXPECT_EQ(Attend(split, {Task(100, 10)}), 100'000);
  EXPECT_THAT(library_.rows, IsEmpty());
  EXPECT_EQ(figures_.library_refusal, "no engine") << "later jobs have the reason too";
  EXPECT_EQ(figures_.library_scores, 0);
}

TEST_F(AttentionSplitTest, CancellingEndsIt) {
  AttentionSplit split = Split({.wanted = AttentionKernel::kCudnn, .flight_scores = 100});
  int asked = 0;
  const AttendControl control{.cancelled = [&] { return ++asked == 2; }};
  const std::vector<AttentionTask> tasks(5, Task(10));
  EXPECT_TRUE(absl::IsCancelled(split.Attend(tasks, control, nullptr, figures_)));
  EXPECT_EQ(library_.rows.size(), 2u);
  AttentionSplit trying = Split(Soon());
  asked = 1;
  EXPECT_TRUE(absl::IsCancelled(
      trying.Attend(std::vector<AttentionTask>{Task(100, 10)}, control, nullptr, figures_)));
  EXPECT_EQ(library_.rows.size(), 3u);  // not even timed
}

TEST_F(AttentionSplitTest, ATrialThatFailsIsNoFailure) {
  library_.error = absl::InternalError("broken");
  AttentionSplit split = Split(Soon());
  EXPECT_EQ(Attend(split, {Task(100, 10)}), 100'000);
  EXPECT_THAT(native_rows_, ElementsAre(100));
  library_.error = absl::OkStatus();  // the split does not try it again
  EXPECT_EQ(Attend(split, {Task(100, 10)}), 100'000);
  EXPECT_THAT(library_.rows, IsEmpty());
}

TEST(PartOf, CutsBatchesThenRows) {
  AttentionTask task = Task(100, 7);
  EXPECT_EQ(PartOf(task, 1e9).batch, 7);
  EXPECT_EQ(PartOf(task, 2.5e4).batch, 2);
  EXPECT_EQ(PartOf(task, 2.5e4).query_rows, 100);
  EXPECT_EQ(PartOf(task, 2.5e3).batch, 1);
  EXPECT_EQ(PartOf(task, 2.5e3).query_rows, 25);
  EXPECT_EQ(PartOf(task, 1).query_rows, 1);
  task.mask = Mask::kDiagonal;  // its parts would be other shapes
  EXPECT_EQ(PartOf(task, 2.5e3).query_rows, 100);
  EXPECT_EQ(AboutScores(task), 7 * 100 * 100 / 2);
  task.left = 9;
  EXPECT_EQ(AboutScores(task), 7 * 100 * 10);
}

}  // namespace
}  // namespace hilbert_ring::cuda
