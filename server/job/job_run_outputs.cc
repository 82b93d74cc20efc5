// How a run's outputs get to the client: those that workers send, and those that lie in shared
// shards.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/job/job_run.h"
#include "server/process/threads.h"

namespace hilbert_ring::server {
namespace {

// Of a worker's reader with a client that does not take its outputs.
constexpr auto kPatience = std::chrono::milliseconds(100);
constexpr Clock::duration kAnyPatience = Clock::duration::max();

}  // namespace

absl::StatusOr<bool> JobRun::Deliver(int rank, const v1::OutputChunk& chunk,
                                     std::string_view payload,
                                     const std::shared_ptr<const void>& owner, int64_t first_slot,
                                     Clock::duration patience) {
  RowSet& slots =
      chunk.tensor() == v1::TENSOR_OUT ? options_.delivered->out : options_.delivered->lse;
  const absl::Status unexpected =
      absl::InternalError(absl::StrCat("worker ", options_.members[rank]->address,
                                       " sent outputs of slots that it does not have, or twice"));
  if (first_slot < 0 || chunk.rows() < 1 || chunk.rows() > slots.size() - first_slot) {
    return unexpected;
  }
  const RowSpan span{.begin = first_slot, .end = first_slot + chunk.rows()};
  {
    const std::lock_guard lock(mutex_);
    // Before the client sees a row twice.
    const RowSpan gap = slots.GapFrom(span.begin);
    if (gap.begin != span.begin || gap.end < span.end) return unexpected;
  }
  const absl::StatusOr<bool> handed = options_.output(rank, chunk, payload, owner, patience);
  if (!handed.ok() || !*handed) return handed;
  const std::lock_guard lock(mutex_);
  if (!slots.Add(span.begin, span.end)) return unexpected;
  return true;
}

void JobRun::NotePassingOn(int rank, bool passing_on) {
  const std::lock_guard lock(mutex_);
  watch_.PassesOn(rank, passing_on, Clock::now());
}

absl::Status JobRun::PassOn(int rank, v1::OutputChunk& chunk, int64_t first_slot) {
  const auto payload = std::make_shared<const std::string>(std::move(*chunk.mutable_payload()));
  chunk.clear_payload();
  NotePassingOn(rank, true);
  const absl::StatusOr<bool> handed =
      Deliver(rank, chunk, *payload, payload, first_slot, kAnyPatience);
  NotePassingOn(rank, false);
  return handed.status();
}

absl::Status JobRun::PassOnShared(int rank, int64_t rows_final) {
  Stream& stream = *streams_[rank];
  if (!stream.outputs || rows_final > options_.plan->shards.Rows(rank)) {
    return absl::InternalError(absl::StrCat("worker ", options_.members[rank]->address,
                                            " speaks of rows that it does not share"));
  }
  {
    const std::lock_guard lock(mutex_);
    stream.rows_final = std::max(stream.rows_final, rows_final);
    watch_.Moved(rank, Clock::now());
    changed_.notify_all();
  }
  if (stream.passer.joinable()) return absl::OkStatus();
  NotePassingOn(rank, true);
  const absl::StatusOr<bool> all = PassOnFinal(rank, rows_final, kPatience);
  NotePassingOn(rank, false);
  if (!all.ok() || *all) return all.status();
  auto passer = StartThread([this, rank] { PassOnRest(rank); });
  if (passer.ok()) stream.passer = *std::move(passer);
  return passer.status();
}

// Of rows that are final, as many as the client takes; false when it does not take them all.
absl::StatusOr<bool> JobRun::PassOnFinal(int rank, int64_t rows_final, Clock::duration patience) {
  Stream& stream = *streams_[rank];
  while (stream.cut ||
         (stream.cut = stream.outputs->Next(rows_final, stream.chunk, stream.payload))) {
    const absl::StatusOr<bool> handed =
        Deliver(rank, stream.chunk, stream.payload, stream.shard.memory,
                stream.outputs->first_slot(), patience);
    if (!handed.ok() || !*handed) return handed;
    stream.cut = false;
  }
  return true;
}

// In the passing thread: until the reader has heard of all rows, and the client has them.
void JobRun::PassOnRest(int rank) {
  Stream& stream = *streams_[rank];
  int64_t passed = 0;
  while (stop_.why().ok()) {
    bool all = false;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, stop_.token(),
                    [&] { return stream.rows_final > passed || stream.all_final; });
      passed = stream.rows_final;
      all = stream.all_final;
    }
    const absl::StatusOr<bool> handed = PassOnFinal(rank, passed, kAnyPatience);
    if (!handed.ok()) stop_.Request(handed.status());
    if (all) return;
  }
}

// In the reader, when its stream has ended.
void JobRun::EndPasser(int rank) {
  Stream& stream = *streams_[rank];
  if (!stream.passer.joinable()) return;
  NotePassingOn(rank, true);  // that the worker is silent now is no stall
  {
    const std::lock_guard lock(mutex_);
    stream.all_final = true;
    changed_.notify_all();
  }
  stream.passer.join();
}

}  // namespace hilbert_ring::server
