// Splits tasks between a library's attention and our own kernels.
//
// AttentionKernel::kCudnn: the library computes all that it takes. kAuto: it computes the shapes
// for which it is faster on this GPU. That is found out by computing a part of a task both ways,
// once enough work of its shape has come to be worth the library's preparations; until then, and
// for shapes that hardly ever come, our own kernels compute it.
//
// Tasks of which the library's results are in doubt are computed again by our own kernels. Only
// what is written goes to the library: it keeps neither a merged row's float32 result nor its
// maximum apart.
//
// Needs no GPU by itself: what computes, waits and tells the time is given.
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

// What a kernel's speed depends on.
struct TaskShape {
  DataType dtype = DataType::kBFloat16;
  Mask mask = Mask::kNone;
  int64_t heads = 1;
  int64_t query_rows = 0;
  int64_t key_rows = 0;
  int64_t head_dim = 0;
  int64_t value_dim = 0;
  int64_t query_stride = 0;  // from row to row
  int64_t key_stride = 0;
  auto operator<=>(const TaskShape&) const = default;
};

// (query, key, head) scores of the task that are not masked, about.
double AboutScores(const AttentionTask& task);

// A part of the task of at most `most_scores`, or as near as batches and, where nothing is masked,
// query rows can be cut. At least one row.
AttentionTask PartOf(const AttentionTask& task, double most_scores);

struct AttentionSplitOptions {
  AttentionKernel wanted = AttentionKernel::kAuto;  // kAuto or kCudnn
  // Of a shape before it is tried: 4 ms at head dim 64, 300 TFLOP/s. Of the published job's
  // heads 3, 3 and 2 have a branch each: three shapes of 0.61, 0.30 and 0.10 times as many scores a
  // job, which are tried in the second, the fourth and the tenth.
  double worth_scores = 0x1p32;
  double trial_scores = 0x1p30;              // of a trial, computed eight times: 1 ms each
  int64_t flight_scores = int64_t{1} << 34;  // of the library's calls that are waited for together
  size_t most_shapes = 4096;                 // remembered
};

class AttentionSplit {
 public:
  // By our own kernels: adds to `scores` what was computed, and tells `control` of it.
  using Native = std::function<absl::Status(std::span<const AttentionTask> tasks,
                                            const AttendControl& control, int64_t& scores)>;
  // Waits for what the library has started.
  using Await = std::function<absl::Status()>;
  using Seconds = std::function<double()>;  // since any moment

  // The library outlives this.
  AttentionSplit(const AttentionSplitOptions& options, LibraryAttention& library, Native native,
                 Await await, Seconds now);

  // Computes all tasks and waits for the library's; adds to `figures`. CANCELLED when control said
  // so; the errors of either.
  absl::Status Attend(std::span<const AttentionTask> tasks, const AttendControl& control,
                      void* stream, AttendFigures& figures);

 private:
  enum class Choice { kUnknown, kLibrary, kNative };
  struct Known {
    double scores = 0;
    Choice choice = Choice::kUnknown;
    std::string refusal;  // of the library at the trial
  };

  // A refusal at a trial, this one or an earlier one, is noted in `refusal`.
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
  std::vector<bool> doubts_;  // of the library's tasks that are in flight, as far as they are known
};

}  // namespace hilbert_ring::cuda
