#include "engine/device/cuda/attention_split.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/return_if_error.h"
#include "engine/device/cuda/cudnn_problem.h"

namespace hilbert_ring::cuda {
namespace {

constexpr int kTrialRounds = 3;   // the fastest counts
constexpr double kFaster = 0.97;  // the library must take a smaller part of native time

TaskShape ShapeOf(const AttentionTask& task) {
  return {.dtype = task.dtype,
          .mask = task.mask,
          .left = task.left,
          .heads = task.heads,
          .query_rows = task.query_rows,
          .key_rows = task.key_rows,
          .head_dim = task.head_dim,
          .value_dim = task.value_dim,
          .query_stride = task.q.row_stride,
          .key_stride = task.k.row_stride};
}

absl::Status CheckCancelled(const AttendControl& control) {
  if (control.cancelled && control.cancelled()) return absl::CancelledError("attention cancelled");
  return absl::OkStatus();
}

}  // namespace

double AboutScores(const AttentionTask& task) {
  const double lanes = static_cast<double>(task.batch) * static_cast<double>(task.heads) *
                       static_cast<double>(task.query_rows);
  const auto keys = static_cast<double>(task.key_rows);
  if (task.mask == Mask::kNone) return lanes * keys;
  return lanes * std::min(keys / 2, static_cast<double>(task.left) + 1);
}

AttentionTask PartOf(const AttentionTask& task, double most_scores) {
  const auto cut = [&](int64_t whole, double scores) {
    const double fit = static_cast<double>(whole) * std::min(1.0, most_scores / scores);
    return std::max<int64_t>(1, static_cast<int64_t>(fit));
  };
  AttentionTask part = task;
  part.batch = cut(task.batch, AboutScores(task));
  if (task.mask == Mask::kNone) part.query_rows = cut(task.query_rows, AboutScores(part));
  return part;
}

AttentionSplit::AttentionSplit(const AttentionSplitOptions& options, LibraryAttention& library,
                               Native native, Await await, Seconds now)
    : options_(options),
      library_(library),
      native_(std::move(native)),
      await_(std::move(await)),
      now_(std::move(now)) {}

absl::Status AttentionSplit::Attend(std::span<const AttentionTask> tasks,
                                    const AttendControl& control, void* stream,
                                    AttendFigures& figures) {
  std::vector<AttentionTask> own;
  struct Started {
    const AttentionTask* task;
    int64_t scores;
  };
  std::vector<Started> flight;  // calls that are not awaited yet
  int64_t unseen = 0;           // scores of `flight`
  const auto see = [&]() -> absl::Status {
    RETURN_IF_ERROR(await_());
    TakeDoubts();
    for (size_t i = 0; i < flight.size(); ++i) {
      if (!doubts_[i]) continue;
      own.push_back(*flight[i].task);
      unseen -= flight[i].scores;
    }
    figures.scores += unseen;
    figures.library_scores += unseen;
    if (control.progress) control.progress(unseen);
    unseen = 0;
    flight.clear();
    doubts_.clear();
    return CheckCancelled(control);
  };
  library_.Doubts();  // drops those of an Attend that ended with an error
  doubts_.clear();
  for (const AttentionTask& task : tasks) {
    std::string refusal;
    ASSIGN_OR_RETURN(const bool is_for_library, IsForLibrary(task, control, stream, refusal));
    int64_t taken = 0;
    if (is_for_library) {
      ASSIGN_OR_RETURN(taken, library_.Attend(task, stream));
      if (taken == 0) refusal = library_.Refusal();
    }
    if (figures.library_refusal.empty()) figures.library_refusal = std::move(refusal);
    if (taken == 0) {
      own.push_back(task);
      continue;
    }
    unseen += taken;
    flight.push_back({&task, taken});
    if (unseen < options_.flight_scores && flight.size() < kMostLibraryTasks) continue;
    RETURN_IF_ERROR(see());
  }
  if (!flight.empty()) {
    RETURN_IF_ERROR(see());
  }
  return native_(own, control, figures.scores);
}

absl::StatusOr<bool> AttentionSplit::IsForLibrary(const AttentionTask& task,
                                                  const AttendControl& control, void* stream,
                                                  std::string& refusal) {
  if (!WhyNotCudnn(task).empty()) return false;
  if (options_.wanted == AttentionKernel::kCudnn) return true;
  const TaskShape shape = ShapeOf(task);
  if (known_.size() >= options_.most_shapes && !known_.contains(shape)) Forget();
  Known& known = known_[shape];
  known.scores += AboutScores(task);
  if (known.choice == Choice::kUnknown && known.scores >= options_.worth_scores) {
    ASSIGN_OR_RETURN(known.choice, Try(task, control, stream, known.refusal));
  }
  refusal = known.refusal;
  return known.choice == Choice::kLibrary;
}

void AttentionSplit::TakeDoubts() {
  const std::vector<bool> doubts = library_.Doubts();
  doubts_.insert(doubts_.end(), doubts.begin(), doubts.end());
}

// Makes room for a shape: drops all untried shapes, or every shape if all were tried.
void AttentionSplit::Forget() {
  std::erase_if(known_, [](const auto& known) { return known.second.choice == Choice::kUnknown; });
  if (known_.size() >= options_.most_shapes) known_.clear();
}

// Times the library and native kernels on a part of the task. The caller computes that part again,
// so that one kernel computes the whole task. If only the library fails, the shape is native from
// now on. Errors: CANCELLED, and those of the stream or native kernels.
absl::StatusOr<AttentionSplit::Choice> AttentionSplit::Try(const AttentionTask& task,
                                                           const AttendControl& control,
                                                           void* stream, std::string& refusal) {
  const AttentionTask part = PartOf(task, options_.trial_scores);
  const AttendControl quiet{.cancelled = control.cancelled};
  double library_seconds = 0, native_seconds = 0;
  for (int round = 0; round <= kTrialRounds; ++round) {  // the first round warms up
    const double start = now_();
    const auto taken = library_.Attend(part, stream);
    absl::Status status = await_();
    if (status.ok()) status = CheckCancelled(control);
    RETURN_IF_ERROR(status);
    if (!taken.ok() || *taken == 0) {
      refusal = taken.ok() ? library_.Refusal() : std::string(taken.status().message());
      return Choice::kNative;
    }
    TakeDoubts();
    doubts_.pop_back();  // the part's: its results are not used
    const double middle = now_();
    int64_t scores = 0;
    status = native_({&part, 1}, quiet, scores);
    RETURN_IF_ERROR(status);
    const double end = now_();
    if (round < 2 || middle - start < library_seconds) library_seconds = middle - start;
    if (round < 2 || end - middle < native_seconds) native_seconds = end - middle;
  }
  return library_seconds < kFaster * native_seconds ? Choice::kLibrary : Choice::kNative;
}

}  // namespace hilbert_ring::cuda
