// The parts of a rank's run that every executor has: waiting for rows, computing tasks, moving
// blocks of an arena, and the figures.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/plan/rank_schedule.h"
#include "engine/run/executor.h"
#include "engine/run/tasks.h"

namespace hilbert_ring {

// Used by one thread, except for calls of a device's threads.
class RankRun {
 public:
  // Arguments outlive it.
  RankRun(const Plan& plan, int rank, ShardStore& store, Device& device, Communicator* communicator,
          int64_t first_step, const ExecuteControl& control)
      : plan_(plan),
        rank_(rank),
        store_(store),
        device_(device),
        communicator_(communicator),
        first_step_(first_step),
        control_(control) {}

  const Plan& plan() const { return plan_; }
  const JobSpec& spec() const { return plan_.spec; }
  int rank() const { return rank_; }
  ShardStore& store() const { return store_; }
  Device& device() const { return device_; }

  // Allocates the arena and the accumulators, whose end are the slopes and sinks of heads, and
  // `others` more bytes. Fills lse with -infinity.
  absl::Status Prepare(int64_t others);

  std::byte* arena() { return arena_->data(); }
  float* accumulators() { return reinterpret_cast<float*>(accumulators_->data()); }
  std::byte* others() { return others_->data(); }
  const float* slopes() const { return slopes_; }  // [heads]; null: none
  const float* sinks() const { return sinks_; }

  bool RowsCome() const { return control_.await_rows != nullptr; }  // while others are computed
  absl::Status AwaitRows(int64_t rows);
  absl::Status Compute(const Rounds& rounds);
  absl::Status Merge(const std::vector<MergeTask>& tasks);
  absl::Status Finalize(const std::vector<FinalizeTask>& tasks);
  absl::Status Pack(const std::vector<PackTask>& tasks);
  void TellFinal(int64_t rows) const {
    if (control_.rows_final) control_.rows_final(rows);
  }

  // Prepares a block of the arena for sending. Blocks that arrived need it not.
  absl::Status Offer(int64_t offset, int64_t bytes);

  // Starts and awaits the transfers of a step, from 1; without transfers they do nothing.
  absl::Status Post(int64_t step, const std::vector<BlockTransfer>& sends,
                    const std::vector<BlockTransfer>& receives);
  absl::Status Wait(int64_t step, const std::vector<BlockTransfer>& sends,
                    const std::vector<BlockTransfer>& receives);

  // The result, after `steps` computed all. Transfers of a failed run do not outlive it.
  absl::StatusOr<Figures> End(const absl::Status& steps);

 private:
  double FlopsPerScore() const {
    return 2.0 * static_cast<double>(plan_.spec.head_dim + plan_.spec.value_dim);
  }
  // The memory that the communicator uses.
  std::byte* ExchangeArena() { return host_arena_.empty() ? arena_->data() : host_arena_.data(); }
  absl::Status CopyHeadNumbers();
  absl::Status Timed(absl::FunctionRef<absl::Status()> compute);  // as compute seconds
  void Report(SpanKind kind, int64_t step, Deadline begin) const;
  Deadline Due() const { return control_.deadline ? control_.deadline() : Deadline::max(); }
  bool Stopped() const;
  void Progress(int64_t scores);

  const Plan& plan_;
  const int rank_;
  ShardStore& store_;
  Device& device_;
  Communicator* const communicator_;
  const int64_t first_step_;
  const ExecuteControl& control_;
  std::unique_ptr<Buffer> arena_, accumulators_, others_;
  const float* slopes_ = nullptr;
  const float* sinks_ = nullptr;
  // A host copy of the arena, if the communicator cannot access the device's memory.
  std::vector<std::byte> host_arena_;
  Figures figures_;
  std::atomic<int64_t> scores_ = 0;
  int64_t library_scores_ = 0;  // included in scores_
  int64_t rows_there_ = 0;      // local rows [0, rows_there_) have come
  Deadline posted_;
  int64_t step_ = 0;        // the last whose blocks came
  bool in_flight_ = false;  // a posted step was not waited for
};

}  // namespace hilbert_ring
