#include "server/coordinator/job_run.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/row_messages.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr auto kProgressInterval = std::chrono::milliseconds(200);
constexpr auto kCulpritLimit = std::chrono::milliseconds(300);

// Statuses of the transport carry no details.
bool SaidByWorker(const grpc::Status& status) { return !status.error_details().empty(); }

TensorKind KindOf(v1::Tensor tensor) {
  return tensor == v1::TENSOR_Q   ? TensorKind::kQ
         : tensor == v1::TENSOR_K ? TensorKind::kK
                                  : TensorKind::kV;
}

bool MeansLoss(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kAborted ||
         code == absl::StatusCode::kCancelled || code == absl::StatusCode::kFailedPrecondition;
}

}  // namespace

JobRun::JobRun(JobRunOptions options, JobStop& stop) : options_(std::move(options)), stop_(stop) {}

JobRun::~JobRun() {
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
  open.set_incarnation(options_.members[rank]->incarnation);
  open.set_want_lse(options_.want_lse);
  open.set_compute_timeout_ms(options_.compute_timeout.count());
  if (streams_[rank]->memory != nullptr) {
    *open.mutable_shared_memory() = streams_[rank]->memory->offer();
  }
  return request;
}

// Where that fails rows are sent.
void JobRun::ShareMemory(int rank) {
  if (options_.shards == nullptr || !MayShareMemory(options_.members[rank]->address)) return;
  const Plan& plan = *options_.plan;
  auto memory = options_.shards->Take(ShardStore::SharedBytes(plan, rank));
  if (!memory.ok()) {
    spdlog::warn("job {}: {}", options_.job_id, std::string(memory.status().message()));
    return;
  }
  Stream& stream = *streams_[rank];
  stream.memory = *std::move(memory);
  stream.store = ShardStore::Over(stream.memory->data(), plan, rank);
  stream.arrived.emplace(stream.store->rows());
  stream.outputs.emplace(plan, rank, *stream.store, options_.want_lse);
}

void JobRun::Open() {
  const int workers = static_cast<int>(options_.members.size());
  for (int rank = 0; rank < workers; ++rank) {
    streams_.push_back(std::make_unique<Stream>(stop_));
    Stream& stream = *streams_.back();
    stream.call = options_.members[rank]->stub->Run(&stream.context);
    stream.departed.emplace(options_.members[rank]->departed.get_token(), [this, rank] {
      stop_.Request(Lost(rank, "its heartbeats or its connection ended"));
    });
  }
  for (int rank = 0; rank < workers; ++rank) {
    ShareMemory(rank);
    // Should that fail, its reader finds out why.
    streams_[rank]->call->Write(OpenRequest(rank));
    streams_[rank]->reader = std::thread([this, rank] { ReadFrom(rank); });
  }
}

absl::Status JobRun::AwaitReady(Deadline deadline, const RowRouter* router) {
  absl::Status status = Await(deadline, "was not ready for the job in time", &Stream::ready);
  for (int rank = 0; rank < static_cast<int>(streams_.size()) && status.ok(); ++rank) {
    Stream& stream = *streams_[rank];
    {
      const std::lock_guard lock(mutex_);
      if (stream.shares || stream.store == nullptr) continue;
    }
    const std::unique_ptr<ShardStore> store = std::move(stream.store);
    const std::shared_ptr<SharedMemory> memory = std::move(stream.memory);
    if (router == nullptr) continue;
    status = SendOrderTo(rank, *router);
    if (status.ok()) status = SendStored(rank, *store);
  }
  ready_ = status.ok();
  return status;
}

absl::Status JobRun::SendStored(int rank, const ShardStore& store) {
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
    const RowRun all{.rank = rank, .local_row = 0, .rows = store.rows()};
    const int64_t bytes = all.rows * wire::TensorRowBytes(options_.plan->spec, tensor);
    const wire::Payload payload(
        {reinterpret_cast<const char*>(store.Row(KindOf(tensor), 0)), static_cast<size_t>(bytes)});
    wire::PayloadReader reader(payload);
    RowMessages messages(options_.plan->spec, tensor);
    messages.Add(all, reader);
    for (v1::ShardRows& rows : messages.Take()) {
      v1::RunRequest request;
      *request.mutable_rows() = std::move(rows);
      if (absl::Status status = Write(rank, request); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

// A write fails when the stream has ended; why, its reader finds out.
absl::Status JobRun::Write(int rank, const v1::RunRequest& request) {
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
    if (streams_[rank]->store != nullptr) {
      router.WriteOrder(rank, streams_[rank]->store->tokens());
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
  const TensorKind kind = KindOf(chunk.tensor());
  std::map<int, RowMessages> messages;
  wire::PayloadReader reader(payload);
  for (const RowRun& run : router.Runs(chunk.tensor(), chunk.first_row(), chunk.rows())) {
    Stream& stream = *streams_[run.rank];
    if (stream.store != nullptr) {
      std::byte* const to = stream.store->Row(kind, run.local_row);
      absl::Status status = stream.memory->Write(to, reader, run.rows * row_bytes);
      if (!status.ok()) return status;
      stream.arrived->Add(run.local_row, run.rows);
    } else {
      messages.try_emplace(run.rank, options_.plan->spec, chunk.tensor())
          .first->second.Add(run, reader);
    }
  }
  v1::RunRequest request;
  for (auto& [rank, of_rank] : messages) {
    for (v1::ShardRows& rows : of_rank.Take()) {
      *request.mutable_rows() = std::move(rows);
      if (absl::Status status = Write(rank, request); !status.ok()) return status;
    }
  }
  // Before a worker is ready it may still turn the memory down; FinishRows says it all then.
  for (int rank = 0; ready_ && rank < static_cast<int>(streams_.size()); ++rank) {
    Stream& stream = *streams_[rank];
    if (stream.store == nullptr || stream.arrived->prefix() == stream.told_arrived) continue;
    stream.told_arrived = stream.arrived->prefix();
    if (stream.told_arrived == stream.store->rows()) continue;  // FinishRows says so
    request.mutable_arrived()->set_rows(stream.told_arrived);
    if (absl::Status status = Write(rank, request); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status JobRun::FinishRows() {
  v1::RunRequest request;
  request.mutable_done();
  for (int rank = 0; rank < static_cast<int>(streams_.size()); ++rank) {
    if (absl::Status status = Write(rank, request); !status.ok()) return status;
    streams_[rank]->call->WritesDone();
  }
  return absl::OkStatus();
}

absl::Status JobRun::AwaitComputed(Deadline deadline) {
  return Await(deadline, "did not end its part of the job in time", &Stream::computed);
}

absl::Status JobRun::AwaitEnd() {
  constexpr auto kForLong = std::chrono::hours(24 * 365);
  absl::Status status =
      Await(Clock::now() + kForLong, "did not send all its output", &Stream::ended);
  if (!status.ok()) return status;
  // Only now: a worker that has not ended its job may still write to its shard.
  for (const auto& stream : streams_) {
    if (stream->memory != nullptr) options_.shards->Keep(stream->memory);
  }
  return absl::OkStatus();
}

absl::Status JobRun::Await(Deadline deadline, const char* what, bool Stream::*state) {
  std::unique_lock lock(mutex_);
  const auto missing = [&] {
    return std::find_if(streams_.begin(), streams_.end(),
                        [&](const auto& stream) { return !((*stream).*state); });
  };
  const bool all = changed_.wait_until(lock, stop_.token(), deadline,
                                       [&] { return missing() == streams_.end(); });
  if (all && stop_.why().ok()) return absl::OkStatus();
  if (stop_.why().ok()) {
    const auto rank = missing() - streams_.begin();
    lock.unlock();
    stop_.Request(wire::WithReason(absl::DeadlineExceededError(absl::StrCat(
                                       "worker ", options_.members[rank]->address, " ", what)),
                                   "JOB_TIMEOUT"));
  }
  return stop_.why();
}

void JobRun::ReadFrom(int rank) {
  Stream& stream = *streams_[rank];
  v1::RunResponse response;
  absl::Status status;
  while (status.ok() && stream.call->Read(&response)) status = Handle(rank, response);
  if (!status.ok()) {
    stop_.Request(status);
    stream.context.TryCancel();
  }
  const grpc::Status ended = stream.call->Finish();
  bool complete = false;
  {
    const std::lock_guard lock(mutex_);
    complete = ended.ok() && stream.report.has_value();
  }
  if (!complete) {
    AwaitCulprit(ended);
    stop_.Request(Explain(rank, ended));
  }
  const std::lock_guard lock(mutex_);
  stream.ended = true;
  changed_.notify_all();
}

absl::Status JobRun::Handle(int rank, v1::RunResponse& response) {
  Stream& stream = *streams_[rank];
  switch (response.message_case()) {
    case v1::RunResponse::kReady:
      return HandleReady(rank, response.ready());
    case v1::RunResponse::kProgress:
      return TellProgress(rank, response.progress().fraction());
    case v1::RunResponse::kOutput:
      return PassOn(*response.mutable_output());
    case v1::RunResponse::kFinal:
      return PassOnShared(rank, response.final().rows());
    case v1::RunResponse::kComputed:
      NoteComputed(rank);
      return absl::OkStatus();
    case v1::RunResponse::kFigures: {
      const std::lock_guard lock(mutex_);
      stream.report = std::move(*response.mutable_figures());
      stream.report->set_worker(options_.members[rank]->address);
      return absl::OkStatus();
    }
    case v1::RunResponse::MESSAGE_NOT_SET:
      break;
  }
  return absl::InternalError(
      absl::StrCat("worker ", options_.members[rank]->address, " sent an empty message"));
}

absl::Status JobRun::HandleReady(int rank, const v1::RunReady& ready) {
  Stream& stream = *streams_[rank];
  if (!ready.shares_memory()) stream.outputs.reset();
  const std::lock_guard lock(mutex_);
  stream.shares = ready.shares_memory();
  stream.ready = true;
  changed_.notify_all();
  return absl::OkStatus();
}

absl::Status JobRun::PassOn(v1::OutputChunk& chunk) {
  const auto payload = std::make_shared<const std::string>(std::move(*chunk.mutable_payload()));
  chunk.clear_payload();
  return options_.output(chunk, *payload, payload);
}

absl::Status JobRun::PassOnShared(int rank, int64_t rows_final) {
  Stream& stream = *streams_[rank];
  if (!stream.outputs || rows_final > options_.plan->shards.Rows(rank)) {
    return absl::InternalError(absl::StrCat("worker ", options_.members[rank]->address,
                                            " speaks of rows that it does not share"));
  }
  v1::OutputChunk chunk;
  std::string_view payload;
  while (stream.outputs->Next(rows_final, chunk, payload)) {
    if (absl::Status status = options_.output(chunk, payload, stream.memory); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

void JobRun::NoteComputed(int rank) {
  const std::lock_guard lock(mutex_);
  if (streams_[rank]->computed) return;
  streams_[rank]->computed = true;
  streams_[rank]->computed_at = Clock::now();
  changed_.notify_all();
}

absl::Status JobRun::TellProgress(int rank, double fraction) {
  double mean = 0;
  {
    const std::lock_guard lock(mutex_);
    streams_[rank]->fraction = fraction;
    const Clock::time_point now = Clock::now();
    if (now - told_ < kProgressInterval) return absl::OkStatus();
    told_ = now;
    for (const auto& stream : streams_) mean += stream->fraction;
    mean /= static_cast<double>(streams_.size());
  }
  return options_.progress(mean);
}

absl::Status JobRun::Lost(int rank, const std::string& how) const {
  return wire::WithReason(absl::AbortedError(absl::StrCat(
                              "worker ", options_.members[rank]->address, " was lost: ", how)),
                          "WORKER_LOST");
}

// A worker whose peer died says so before we hear of the death itself: give that a moment, so that
// the right one is named.
void JobRun::AwaitCulprit(const grpc::Status& status) {
  if (!SaidByWorker(status) || !MeansLoss(wire::FromGrpc(status).code())) return;
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, stop_.token(), kCulpritLimit, [] { return false; });
}

// What a worker's status is to the client. The end of its connection, or what it says of a peer
// that died, is a lost worker; what it found wrong is passed on.
absl::Status JobRun::Explain(int rank, const grpc::Status& status) const {
  if (status.ok()) return Lost(rank, "its stream ended without figures");
  const absl::Status error = wire::FromGrpc(status);
  if (!SaidByWorker(status)) return Lost(rank, std::string(error.message()));
  const std::string message =
      absl::StrCat("worker ", options_.members[rank]->address, ": ", error.message());
  if (MeansLoss(error.code())) {
    return wire::WithReason(absl::AbortedError(message), "WORKER_LOST");
  }
  return wire::WithReason(absl::Status(error.code(), message), wire::ReasonOf(error));
}

std::vector<v1::WorkerReport> JobRun::Reports() const {
  const std::lock_guard lock(mutex_);
  std::vector<v1::WorkerReport> reports;
  for (const auto& stream : streams_) {
    reports.push_back(stream->report.value_or(v1::WorkerReport()));
  }
  return reports;
}

Clock::time_point JobRun::computed_at() const {
  const std::lock_guard lock(mutex_);
  Clock::time_point last;
  for (const auto& stream : streams_) last = std::max(last, stream->computed_at);
  return last;
}

}  // namespace hilbert_ring::server
