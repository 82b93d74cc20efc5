// Splits tasks between a library's attention and native kernels.
//
// AttentionKernel::kCudnn: the library computes all tasks that it accepts. kAuto: it computes
// shapes for which it is faster on this GPU. A trial of a part of a task by both decides, once a
// shape has enough scores to be worth the library's preparations. Native kernels compute all other
// tasks, and tasks whose library results are in doubt.
//
// Only results to write go to the library, which keeps no float32 result or maximum to merge.
//
// Needs no GPU itself: functions for computing, waiting and the time are passed in.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/attention.h"
#include "engine/device/cuda/library_attention.h"
#include "engine/device/device.h"

namespace hilbert_ring::cuda {

struct TaskShape {
  DataType dtype = DataType::kBFloat16;
  Mask mask = Mask::kNone;
  int64_t left = kUnbounded;
  int64_t heads = 1;
  int64_t query_rows = 0;
  int64_t key_rows = 0;
  int64_t head_dim = 0;
  int64_t value_dim = 0;
  int64_t query_stride = 0;  // from row to row
  int64_t key_stride = 0;
  auto operator<=>(const TaskShape&) const = default;
};

// About the number of unmasked (query, key, head) scores of the task.
double AboutScores(const AttentionTask& task);

// A part of the task of at most `most_scores`, as near as batches and, without a mask, query rows
// allow. At least one row.
AttentionTask PartOf(const AttentionTask& task, double most_scores);

struct AttentionSplitOptions {
  AttentionKernel wanted = AttentionKernel::kAuto;  // kAuto or kCudnn
  // Scores of a shape before its trial: 4 ms at head dim 64, 300 TFLOP/s. The published job's heads
  // 3, 3 and 2 have a branch each: shapes of 0.61, 0.30 and 0.10 times as many scores a job, which
  // are tried in its second, fourth and tenth job.
  double worth_scores = 0x1p32;
  double trial_scores = 0x1p30;              // of a trial, computed eight times: 1 ms each
  int64_t flight_scores = int64_t{1} << 34;  // of the library's calls that one wait covers
  size_t most_shapes = 4096;                 // remembered
};

class AttentionSplit {
 public:
  // Computes by native kernels, adds to `scores`, and reports to `control`.
  using Native = std::function<absl::Status(std::span<const AttentionTask> tasks,
                                            const AttendControl& control, int64_t& scores)>;
  // Waits for the library's started work.
  using Await = std::function<absl::Status()>;
  using Seconds = std::function<double()>;  // since any moment

  // The library outlives this.
  AttentionSplit(const AttentionSplitOptions& options, LibraryAttention& library, Native native,
                 Await await, Seconds now);

  // Computes all tasks and waits; adds to `figures`. CANCELLED by `control`; errors of either.
  absl::Status Attend(std::span<const AttentionTask> tasks, const AttendControl& control,
                      void* stream, AttendFigures& figures);

 private:
  enum class Choice { kUnknown, kLibrary, kNative };
  struct Known {
    double scores = 0;
    Choice choice = Choice::kUnknown;
    std::string refusal;  // of the library at the trial; empty: accepted
  };

  // `refusal` gets the library's refusal at this or an earlier trial.
  absl::StatusOr<bool> IsForLibrary(const AttentionTask& task, const AttendControl& control,
                                    void* stream, std::string& refusal);
  void Forget();
  void TakeDoubts();
  absl::StatusOr<Choice> Try(const AttentionTask& task, const AttendControl& control, void* stream,
                             std::string& refusal);

  const AttentionSplitOptions options_;
  LibraryAttention& library_;
  const Native native_;
  const Await await_;
  const Seconds now_;
  std::map<TaskShape, Known> known_;
  std::vector<bool> doubts_;  // of the library's tasks in flight, as far as they are known
};

}  // namespace hilbert_ring::cuda
