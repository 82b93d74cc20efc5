#include "server/job/job_run.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/process/threads.h"
#include "server/process/tokens.h"
#include "server/rows/row_pass.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr auto kTellInterval = std::chrono::seconds(10);
constexpr v1::Tensor kRowTensors[] = {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V};

// In the exchange, by rank.
std::vector<int64_t> ReceivedBytes(const Plan& plan) {
  std::vector<int64_t> bytes;
  for (const WorkerCost& worker : plan.costs.workers) bytes.push_back(worker.bytes_received);
  return bytes;
}

}  // namespace

JobRun::JobRun(JobRunOptions options, JobStop& stop)
    : options_(std::move(options)),
      stop_(stop),
      watch_(options_.stall_timeout, ReceivedBytes(*options_.plan)) {}

JobRun::~JobRun() { CancelAndJoin(); }

void JobRun::CancelAndJoin() {
  for (const auto& stream : streams_) {
    bool ended = false;
    {
      const std::lock_guard lock(mutex_);
      ended = stream->ended;
    }
    if (!ended) stream->context.TryCancel();
  }
  for (const auto& stream : streams_) {
    if (stream->reader.joinable()) stream->reader.join();
  }
}

HeldRows JobRun::End() {
  CancelAndJoin();
  std::vector<HeldShard> shards;
  for (const auto& stream : streams_) {
    stream->outputs.reset();
    shards.push_back(std::move(stream->shard));
  }
  return HeldRows(options_.plan->shards, options_.members, std::move(shards), options_.express);
}

v1::RunRequest JobRun::OpenRequest(int rank) const {
  v1::RunRequest request;
  v1::RunOpen& open = *request.mutable_open();
  open.set_job_id(options_.job_id);
  *open.mutable_spec() = wire::EncodeJobSpec(options_.plan->spec);
  for (const ShardRange& range : options_.plan->shards.ranges()) {
    v1::ShardRange& shard = *open.add_shards();
    shard.set_begin(range.begin);
    shard.set_end(range.end);
    shard.set_rank(range.rank);
  }
  open.set_rank(rank);
  open.set_workers(options_.plan->shards.workers());
  open.set_ring_id(options_.ring_id);
  open.set_generation(options_.generation);
  open.set_want_lse(options_.want_lse);
  open.set_express(options_.express);
  open.set_run(place_->number());
  open.set_compute_timeout_ms(options_.compute_timeout.count());
  if (streams_[rank]->offered) {
    *open.mutable_shared_memory() = streams_[rank]->shard.memory->offer();
  }
  // Where memory is shared this process leaves it out, but the offer may be turned down.
  const auto add = [](const RowSet& slots, auto* ranges) {
    for (const auto& [begin, end] : slots.ranges()) {
      v1::SlotRange& range = *ranges->Add();
      range.set_begin(begin);
      range.set_end(end);
    }
  };
  add(options_.delivered->out, open.mutable_delivered_out());
  add(options_.delivered->lse, open.mutable_delivered_lse());
  return request;
}

// Where memory cannot be had, rows are sent and not held; rows that are held already must not be
// lost that way.
absl::Status JobRun::MakeShard(int rank) {
  const Plan& plan = *options_.plan;
  Stream& stream = *streams_[rank];
  const bool offer = options_.share_memory && MayShareMemory(options_.members[rank]->address);
  auto copy = options_.copies->Reserve(offer ? 0 : ShardLayout(plan, rank).bytes());
  if (!copy.ok() && options_.held->empty()) return absl::OkStatus();
  auto shard =
      options_.held->Carry(plan, rank, *options_.members[rank], options_.express, *options_.shards);
  if (!shard.ok()) {
    if (!options_.held->empty()) return shard.status();
    spdlog::warn("job {}: {}", options_.job_id, std::string(shard.status().message()));
    return absl::OkStatus();
  }
  stream.shard = *std::move(shard);
  stream.shard.copy.reset();
  stream.offered = offer;
  if (offer) {
    stream.arrived.emplace(stream.shard.rows->rows());
    stream.outputs.emplace(plan, rank, SourceOf(*stream.shard.rows), options_.want_lse,
                           *options_.delivered);
  } else if (copy.ok()) {
    stream.shard.copy = std::make_unique<JobMemory::Reservation>(*std::move(copy));
  }
  return absl::OkStatus();
}

bool JobRun::Shares(int rank) const {
  const std::lock_guard lock(mutex_);
  return streams_[rank]->shares;
}

// Those that were offered memory take none until it is settled that they do not share it.
bool JobRun::TakesMessages(int rank) const {
  return !streams_[rank]->offered || (settled_ && !Shares(rank));
}

// A shard that is not the worker's own stays as a copy if there is memory for that.
void JobRun::DropUnneeded(int rank) {
  Stream& stream = *streams_[rank];
  if (!stream.shard.rows || stream.shard.copy || !TakesMessages(rank)) return;
  auto copy = options_.copies->Reserve(stream.shard.memory->bytes());
  if (copy.ok()) {
    stream.shard.copy = std::make_unique<JobMemory::Reservation>(*std::move(copy));
  } else {
    stream.shard = HeldShard();
  }
}

void JobRun::Open() {
  place_ = options_.runs->Enter([this](const std::string& worker, const v1::RunFailed& failed) {
    HandleFailed(worker, failed);
  });
  const int workers = static_cast<int>(options_.members.size());
  for (int rank = 0; rank < workers; ++rank) {
    streams_.push_back(std::make_unique<Stream>(stop_));
    Stream& stream = *streams_.back();
    AddCallToken(stream.context, options_.members[rank]->secret, "Run");
    stream.call = options_.members[rank]->stub->Run(&stream.context);
    stream.departed.emplace(options_.members[rank]->departed.get_token(),
                            [this, rank, &stream] { NoteDeparted(rank, stream); });
  }
  for (int rank = 0; rank < workers; ++rank) {
    if (absl::Status status = MakeShard(rank); !status.ok()) {
      stop_.Request(wire::WithReason(status, wire::reason::kHeldRowsMemory));
      return;
    }
    // Should that fail, its reader finds out why.
    streams_[rank]->told_at = Clock::now();
    streams_[rank]->call->Write(OpenRequest(rank));
    auto reader = StartThread([this, rank] { ReadFrom(rank); });
    if (!reader.ok()) {
      stop_.Request(reader.status());
      return;
    }
    streams_[rank]->reader = *std::move(reader);
  }
}

// Of one that has done its part nothing more is wanted.
void JobRun::NoteDeparted(int rank, const Stream& stream) {
  if (options_.members[rank]->left_in_order) return;
  {
    const std::lock_guard lock(mutex_);
    if (stream.ended) return;
  }
  stop_.Request(Lost(rank, "its heartbeats or its connection ended"));
}

absl::Status JobRun::AwaitReady(Deadline deadline) {
  absl::Status status = Await(deadline, "was not ready for the job in time", &Stream::ready, false);
  settled_ = status.ok();
  return status;
}

absl::Status JobRun::SendAgain(const RowRouter& router, const JobInput& input) {
  std::vector<int> turned_down;
  for (int rank = 0; rank < static_cast<int>(streams_.size()); ++rank) {
    if (!streams_[rank]->offered || !TakesMessages(rank)) continue;
    if (absl::Status status = SendOrderTo(rank, router); !status.ok()) return status;
    turned_down.push_back(rank);
  }
  return PassOn(turned_down, router, input);
}

absl::Status JobRun::SendHeld(const RowRouter& router, const JobInput& input) {
  std::vector<int> held;
  for (int rank = 0; rank < static_cast<int>(streams_.size()); ++rank) {
    if (streams_[rank]->shard.rows) held.push_back(rank);
  }
  if (absl::Status status = PassOn(held, router, input); !status.ok()) return status;
  return TellArrived();
}

// From the shards that are here: rows that have come are noted for those that share them, and sent
// to the others.
absl::Status JobRun::PassOn(const std::vector<int>& ranks, const RowRouter& router,
                            const JobInput& input) {
  if (ranks.empty()) return absl::OkStatus();
  enum class Way { kNone, kNoted, kSent };
  std::vector<Way> ways(streams_.size(), Way::kNone);
  for (const int rank : ranks) ways[rank] = TakesMessages(rank) ? Way::kSent : Way::kNoted;
  for (const v1::Tensor tensor : kRowTensors) {
    const TensorKind kind = *wire::TensorKindOf(tensor);
    const int64_t row_bytes = wire::TensorRowBytes(options_.plan->spec, tensor);
    const int64_t piece = std::max<int64_t>(1, wire::kMaxPayloadBytes / row_bytes);
    const auto pass_on = [&](const std::vector<RowRun>& runs) {
      if (absl::Status why = stop_.why(); !why.ok()) return why;
      std::map<int, RowMessages> messages;
      for (const RowRun& run : runs) {
        Stream& stream = *streams_[run.rank];
        if (ways[run.rank] == Way::kNoted) stream.arrived->Add(run.local_row, run.rows);
        if (ways[run.rank] != Way::kSent) continue;
        const std::byte* const row = stream.shard.rows->Row(kind, run.local_row);
        const wire::Payload rows(
            {reinterpret_cast<const char*>(row), static_cast<size_t>(run.rows * row_bytes)});
        wire::PayloadReader reader(rows);
        messages.try_emplace(run.rank, options_.plan->spec, tensor).first->second.Add(run, reader);
      }
      return WriteRows(messages);
    };
    absl::Status status = VisitPlaces(router, tensor, input.Rows(tensor), piece, pass_on);
    if (!status.ok()) return status;
  }
  for (const int rank : ranks) DropUnneeded(rank);
  return absl::OkStatus();
}

absl::Status JobRun::WriteRows(std::map<int, RowMessages>& by_rank) {
  v1::RunRequest request;
  for (auto& [rank, messages] : by_rank) {
    for (v1::ShardRows& rows : messages.Take()) {
      *request.mutable_rows() = std::move(rows);
      if (absl::Status status = Write(rank, request); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

// A write fails when the stream has ended; why, its reader finds out.
absl::Status JobRun::Write(int rank, const v1::RunRequest& request) {
  streams_[rank]->told_at = Clock::now();
  if (streams_[rank]->call->Write(request)) return absl::OkStatus();
  std::unique_lock lock(mutex_);
  constexpr auto kLimit = std::chrono::seconds(5);
  changed_.wait_for(lock, stop_.token(), kLimit, [] { return false; });
  lock.unlock();
  stop_.Request(Lost(rank, "its stream ended while rows were sent"));
  return stop_.why();
}

absl::Status JobRun::SendOrder(const RowRouter& router) {
  for (int rank = 0; rank < static_cast<int>(streams_.size()); ++rank) {
    if (!TakesMessages(rank)) {
      router.WriteOrder(rank, streams_[rank]->shard.rows->tokens());
    } else if (absl::Status status = SendOrderTo(rank, router); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status JobRun::SendOrderTo(int rank, const RowRouter& router) {
  absl::Status status;
  router.SendOrder(rank, [&](v1::OrderPart&& part) {
    v1::RunRequest request;
    *request.mutable_order() = std::move(part);
    status = Write(rank, request);
    return status.ok();
  });
  return status;
}

absl::Status JobRun::Send(const v1::Chunk& chunk, const wire::Payload& payload,
                          const RowRouter& router) {
  const int64_t row_bytes = wire::TensorRowBytes(options_.plan->spec, chunk.tensor());
  const TensorKind kind = *wire::TensorKindOf(chunk.tensor());
  const std::vector<RowRun> runs = router.Runs(chunk.tensor(), chunk.first_row(), chunk.rows());
  std::map<int, RowMessages> messages;
  for (int rank = 0; rank < static_cast<int>(streams_.size()); ++rank) {
    if (TakesMessages(rank)) messages.try_emplace(rank, options_.plan->spec, chunk.tensor());
  }
  // First what is held, all of it, so that it is there whatever becomes of this execution.
  wire::PayloadReader held(payload);
  wire::PayloadReader sent(payload);
  for (const RowRun& run : runs) {
    Stream& stream = *streams_[run.rank];
    const int64_t bytes = run.rows * row_bytes;
    if (stream.shard.rows) {
      std::byte* const to = stream.shard.rows->Row(kind, run.local_row);
      absl::Status status = stream.shard.memory->Write(to, held, bytes);
      if (!status.ok()) return status;
      if (stream.arrived) stream.arrived->Add(run.local_row, run.rows);
    } else {
      held.Skip(bytes);
    }
    const auto to_worker = messages.find(run.rank);
    if (to_worker != messages.end()) {
      to_worker->second.Add(run, sent);
    } else {
      sent.Skip(bytes);
    }
  }
  if (absl::Status status = WriteRows(messages); !status.ok()) return status;
  absl::Status status = TellArrived();
  return status.ok() ? TellElsewhere() : status;
}

// Rows may come for long before a worker gets any: it is told that the job is fed.
absl::Status JobRun::TellElsewhere() {
  const Clock::time_point now = Clock::now();
  v1::RunRequest request;
  request.mutable_elsewhere();
  for (int rank = 0; rank < static_cast<int>(streams_.size()); ++rank) {
    if (now - streams_[rank]->told_at < kTellInterval) continue;
    if (absl::Status status = Write(rank, request); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Before a worker is ready it may still turn the memory down; FinishRows says it all then.
absl::Status JobRun::TellArrived() {
  v1::RunRequest request;
  for (int rank = 0; rank < static_cast<int>(streams_.size()); ++rank) {
    Stream& stream = *streams_[rank];
    if (!settled_ || !stream.arrived || stream.arrived->prefix() == stream.told_arrived) continue;
    if (!Shares(rank)) continue;
    stream.told_arrived = stream.arrived->prefix();
    if (stream.told_arrived == stream.shard.rows->rows()) continue;  // FinishRows says so
    request.mutable_arrived()->set_rows(stream.told_arrived);
    if (absl::Status status = Write(rank, request); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status JobRun::FinishRows() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = Clock::now();
  }
  v1::RunRequest request;
  request.mutable_done();
  for (int rank = 0; rank < static_cast<int>(streams_.size()); ++rank) {
    if (absl::Status status = Write(rank, request); !status.ok()) return status;
    streams_[rank]->call->WritesDone();
  }
  return absl::OkStatus();
}

absl::Status JobRun::AwaitComputed(Deadline deadline) {
  return Await(deadline, "did not end its part of the job in time", &Stream::computed, true);
}

absl::Status JobRun::AwaitEnd() {
  constexpr auto kForLong = std::chrono::hours(24 * 365);
  absl::Status status =
      Await(Clock::now() + kForLong, "did not send all its output", &Stream::ended, true);
  if (!status.ok()) return status;
  // Only now: a worker that has not ended its job may still write to its shard.
  for (const auto& stream : streams_) {
    if (stream->shard.memory != nullptr) options_.shards->Keep(stream->shard.memory);
  }
  return absl::OkStatus();
}

}  // namespace hilbert_ring::server
