#include "server/coordinator/attend_call.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/chunk_ledger.h"
#include "server/coordinator/coordinates.h"
#include "server/coordinator/fit.h"
#include "server/coordinator/row_router.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr size_t kMaxJobIdBytes = 128;
// For the memory of all workers, and for a job before this one that was cancelled and is ending.
constexpr auto kStartTimeout = std::chrono::seconds(60);
// Beyond a worker's own limit on its compute.
constexpr auto kComputeSlack = std::chrono::seconds(30);

constexpr int64_t kFewBytes = 1 << 20;

int64_t InputBytes(const JobSpec& spec) {
  int64_t row_bytes = 0;
  for (const TensorKind tensor : {TensorKind::kQ, TensorKind::kK, TensorKind::kV}) {
    row_bytes += RowBytes(spec, tensor);
  }
  return spec.tokens * row_bytes;
}

std::string DrawJobId() {
  std::random_device device;
  const uint64_t bits = (uint64_t{device()} << 32) | device();
  return absl::StrCat("job-", absl::Hex(bits, absl::kZeroPad16));
}

absl::Status BadOpen(const std::string& message) {
  return wire::WithReason(absl::InvalidArgumentError(message), "INVALID_OPEN");
}

absl::Status CheckJobId(const std::string& job_id) {
  const bool printable =
      std::all_of(job_id.begin(), job_id.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (job_id.size() <= kMaxJobIdBytes && printable) return absl::OkStatus();
  return BadOpen(absl::StrCat("job_id has ", job_id.size(), " bytes, must be at most ",
                              kMaxJobIdBytes, " printable ASCII characters without spaces"));
}

}  // namespace

SpecLimits LimitsOf(const CoordinatorSettings& settings) {
  return {.max_tokens = settings.max_tokens,
          .max_heads = settings.max_heads,
          .max_branches = settings.max_branches,
          .max_sequences = settings.max_sequences};
}

struct AttendCall::Receiving {
  explicit Receiving(const JobSpec& spec) : ledger(spec) {}
  ChunkLedger ledger;
  std::optional<Coordinates> coordinates;  // until all are there
  std::optional<RowRouter> router;         // once the order is known
};

AttendCall::AttendCall(const JobServices& services, AttendStream& stream, std::string caller)
    : services_(services), stream_(stream), caller_(std::move(caller)) {}

AttendCall::~AttendCall() = default;

absl::StatusOr<v1::Report> AttendCall::Run() {
  absl::Status status = ReadOpen();
  if (status.ok()) {
    progress_.emplace(spec_.tokens);
    auto entry = services_.jobs.Enter(caller_, open_.job_id(), open_.attempt(), &stream_.stop(),
                                      &*progress_);
    status = entry.ok() ? Execute() : entry.status();
  }
  // When several things went wrong, the first of them is the reason for the others.
  if (absl::Status why = stream_.stop().why(); !status.ok() && !why.ok()) status = why;
  services_.metrics.CountJob(absl::StatusCodeToString(status.code()));
  if (status.ok()) {
    services_.metrics.ObserveJob(seconds_);
    services_.metrics.AddTokens(spec_.tokens);
  }
  Log(status);
  if (!status.ok()) return status;
  return std::move(report_);
}

void AttendCall::Log(const absl::Status& status) const {
  if (status.ok()) {
    spdlog::info(
        "job {} OK: {} tokens in {:.3f} s (queue {:.3f}, receive {:.3f}, compute {:.3f}, "
        "send {:.3f})",
        open_.job_id(), spec_.tokens, seconds_.total, seconds_.queue, seconds_.receive,
        seconds_.compute, seconds_.send);
  } else {
    spdlog::warn("job {} {}: {} tokens after {:.3f} s: {} [{}]", open_.job_id(),
                 absl::StatusCodeToString(status.code()), spec_.tokens,
                 SecondsBetween(opened_, Clock::now()), std::string(status.message()),
                 wire::ReasonOf(status));
  }
}

absl::Status AttendCall::ReadOpen() {
  AttendMessage message;
  const absl::StatusOr<bool> more = stream_.Read(message, IdleDeadline());
  if (!more.ok()) return more.status();
  if (!*more || !message.request.has_open()) return BadOpen("the first message must be Open");
  open_ = std::move(*message.request.mutable_open());
  if (absl::Status status = CheckJobId(open_.job_id()); !status.ok()) {
    open_.set_job_id("?");
    return status;
  }
  if (open_.job_id().empty()) open_.set_job_id(DrawJobId());
  if (open_.attempt() < 0) {
    return BadOpen(absl::StrCat("attempt is ", open_.attempt(), ", must not be negative"));
  }
  auto spec = wire::DecodeJobSpec(open_.spec());
  if (!spec.ok()) return spec.status();
  spec_ = *std::move(spec);
  open_.clear_spec();
  return Validate();
}

absl::Status AttendCall::Validate() const {
  const CoordinatorSettings& settings = services_.settings;
  if (absl::Status status = hilbert_ring::Validate(spec_, LimitsOf(settings)); !status.ok()) {
    return wire::WithReason(std::move(status), "INVALID_SPEC");
  }
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V, v1::TENSOR_OUT}) {
    const int64_t row_bytes = wire::TensorRowBytes(spec_, tensor);
    if (row_bytes > wire::kMaxPayloadBytes) {
      return wire::WithReason(absl::OutOfRangeError(absl::StrCat(
                                  "heads: a row of ", wire::TensorName(tensor), " has ", row_bytes,
                                  " bytes, the limit of a chunk is ", wire::kMaxPayloadBytes)),
                              "INVALID_SPEC");
    }
  }
  if (spec_.ordering && spec_.ordering->coordinate_axes > 0 &&
      Coordinates::MemoryBytes(spec_) > settings.order_memory_limit_bytes) {
    return wire::WithReason(
        absl::FailedPreconditionError(absl::StrCat(
            "ordering: coordinates of ", spec_.tokens, " tokens take ",
            Coordinates::MemoryBytes(spec_), " bytes at the coordinator, whose limit is ",
            settings.order_memory_limit_bytes, " (--order-memory-limit)")),
        "DOES_NOT_FIT");
  }
  return absl::OkStatus();
}

// Over all workers that are up, in the order in which they joined.
absl::Status AttendCall::PlanOverLiveWorkers() {
  Members live = services_.membership.Live();
  if (live.empty()) {
    return wire::WithReason(absl::UnavailableError("no worker is there"), "NO_WORKERS");
  }
  if (plan_ && live == members_) return absl::OkStatus();
  if (live.size() > static_cast<size_t>(kMaxWorkers)) live.resize(kMaxWorkers);
  members_ = std::move(live);
  auto plan = MakePlan(spec_, static_cast<int>(members_.size()));
  if (!plan.ok()) return wire::WithReason(plan.status(), "INVALID_SPEC");
  plan_ = *std::move(plan);
  std::vector<int64_t> limits;
  for (const auto& member : members_) limits.push_back(member->memory_limit_bytes);
  return CheckFits(*plan_, limits);
}

absl::Status AttendCall::Execute() {
  // Before the queue, so that a job that cannot run is refused at once; and after it, for then
  // other workers may be there.
  if (absl::Status status = PlanOverLiveWorkers(); !status.ok()) return status;
  auto turn = services_.admission.Enter();
  if (!turn.ok()) return turn.status();
  absl::Status status = turn->Await(stream_.stop(), Clock::now() + services_.settings.queue_timeout,
                                    [this](int before) {
                                      v1::AttendResponse response;
                                      response.mutable_queued()->set_position(before);
                                      return stream_.Write(response, IdleDeadline());
                                    });
  if (!status.ok()) return status;
  if (status = PlanOverLiveWorkers(); !status.ok()) return status;
  seconds_.queue = SecondsBetween(opened_, Clock::now());
  spdlog::info("job {} starts: {} tokens, {} heads, {} branches on {} workers, {} exchange steps",
               open_.job_id(), spec_.tokens, spec_.heads, spec_.branches.size(), members_.size(),
               plan_->costs.steps);

  std::optional<Rings::Lease> ring;
  if (plan_->costs.steps > 0) {
    auto lease = services_.rings.Take(members_, open_.job_id(), stream_.stop());
    if (!lease.ok()) {
      return wire::WithReason(
          absl::AbortedError(
              absl::StrCat("the workers' ring could not be formed: ", lease.status().message())),
          "WORKER_LOST");
    }
    ring.emplace(*std::move(lease));
  }
  services_.membership.SetJob(members_, open_.job_id());
  {
    JobRun run({.job_id = open_.job_id(),
                .plan = &*plan_,
                .members = members_,
                .ring_id = ring ? ring->ring_id() : "",
                .generation = ring ? ring->generation() : 0,
                .want_lse = open_.want_lse(),
                .compute_timeout = services_.settings.job_timeout,
                .shards = services_.settings.share_memory ? &services_.shards : nullptr,
                .output =
                    [this](const v1::OutputChunk& chunk, std::string_view payload,
                           const std::shared_ptr<const void>& owner) {
                      return SendOutput(chunk, payload, owner);
                    },
                .progress = [this](double fraction) { return SendProgress(fraction); }},
               stream_.stop());
    run.Open();
    const Deadline ready = Clock::now() + kStartTimeout;
    // Few rows may come while the workers make ready.
    const bool few = InputBytes(spec_) <= kFewBytes;
    if (!few) status = run.AwaitReady(ready, nullptr);
    const int workers = static_cast<int>(members_.size());
    progress_->Begin(JobState::kReceiving, workers);
    if (status.ok()) status = Admit();
    if (status.ok()) status = ReceiveRows(run);
    if (status.ok() && few) status = run.AwaitReady(ready, &*receiving_->router);
    if (status.ok()) status = run.FinishRows();
    receiving_.reset();
    const Clock::time_point received = Clock::now();
    progress_->Begin(JobState::kComputing, workers);
    if (status.ok()) {
      status = run.AwaitComputed(received + services_.settings.job_timeout + kComputeSlack);
    }
    progress_->Begin(JobState::kSending, workers);
    TellSent(0);  // rows that left before
    if (status.ok()) status = run.AwaitEnd();

    if (status.ok()) {
      if (ring) ring->Keep();
      seconds_.compute = std::max(0.0, SecondsBetween(received, run.computed_at()));
      seconds_.send = SecondsBetween(run.computed_at(), Clock::now());
      report_ = MakeReport(run, ring ? ring->generation() : 0);
    }
    // The reason for which the workers' streams end, should they still run.
    if (!status.ok()) stream_.stop().Request(status);
  }
  services_.membership.SetJob(members_, "");
  return status;
}

absl::Status AttendCall::Admit() {
  v1::AttendResponse response;
  v1::Admitted& admitted = *response.mutable_admitted();
  admitted.set_job_id(open_.job_id());
  admitted.set_max_payload_bytes(wire::kMaxPayloadBytes);
  admitted.set_workers(static_cast<int>(members_.size()));
  return stream_.Write(response, IdleDeadline());
}

absl::Status AttendCall::MakeOrder(std::span<const int64_t> coords, JobRun& run) {
  auto order = services_.orders.Get(spec_, coords);
  if (!order.ok()) return wire::WithReason(order.status(), "BAD_COORDINATES");
  receiving_->router.emplace(spec_, plan_->shards, *std::move(order));
  return run.SendOrder(*receiving_->router);
}

absl::Status AttendCall::ReceiveRows(JobRun& run) {
  const Clock::time_point start = Clock::now();
  receiving_ = std::make_unique<Receiving>(spec_);
  if (spec_.ordering && spec_.ordering->coordinate_axes > 0) {
    receiving_->coordinates.emplace(spec_);
  } else if (absl::Status status = MakeOrder({}, run); !status.ok()) {
    return status;
  }
  AttendMessage message;
  while (true) {
    const absl::StatusOr<bool> more = stream_.Read(message, IdleDeadline());
    if (!more.ok()) return more.status();
    if (!*more) break;
    if (!message.request.has_chunk()) return BadOpen("after Open a client sends chunks alone");
    absl::Status status = ReceiveChunk(message.request.chunk(), message.payload, run);
    if (!status.ok()) return status;
  }
  if (absl::Status status = receiving_->ledger.CheckComplete(); !status.ok()) return status;
  seconds_.receive = SecondsBetween(start, Clock::now());
  return absl::OkStatus();
}

absl::Status AttendCall::ReceiveChunk(const v1::Chunk& chunk, const wire::Payload& payload,
                                      JobRun& run) {
  services_.metrics.AddReceived(payload.bytes());
  if (absl::Status status = receiving_->ledger.Accept(chunk, payload); !status.ok()) return status;
  progress_->Advance(JobState::kReceiving, receiving_->ledger.fraction());
  if (chunk.tensor() != v1::TENSOR_COORDS) {
    return run.Send(chunk, payload, *receiving_->router);
  }
  receiving_->coordinates->Place(chunk, payload);
  if (!receiving_->ledger.Complete(v1::TENSOR_COORDS)) return absl::OkStatus();
  absl::Status status = MakeOrder(receiving_->coordinates->values(), run);
  receiving_->coordinates.reset();
  return status;
}

absl::Status AttendCall::SendOutput(const v1::OutputChunk& chunk, std::string_view payload,
                                    const std::shared_ptr<const void>& owner) {
  absl::Status status = stream_.Write(chunk, payload, owner, IdleDeadline());
  if (!status.ok()) return status;
  services_.metrics.AddSent(static_cast<int64_t>(payload.size()));
  if (chunk.tensor() == v1::TENSOR_OUT) TellSent(chunk.rows());
  return absl::OkStatus();
}

void AttendCall::TellSent(int64_t rows) {
  const int64_t sent = rows_sent_ += rows;
  progress_->Advance(JobState::kSending,
                     static_cast<double>(sent) / static_cast<double>(spec_.tokens));
}

absl::Status AttendCall::SendProgress(double fraction) {
  progress_->Advance(JobState::kComputing, fraction);
  v1::AttendResponse response;
  response.mutable_progress()->set_phase(v1::Progress::PHASE_COMPUTE);
  response.mutable_progress()->set_fraction(fraction);
  return stream_.Write(response, IdleDeadline());
}

v1::Report AttendCall::MakeReport(const JobRun& run, int64_t generation) {
  seconds_.total = SecondsBetween(opened_, Clock::now());
  v1::Report report;
  report.set_job_id(open_.job_id());
  report.set_tokens(spec_.tokens);
  report.set_tokens_per_second(static_cast<double>(spec_.tokens) / seconds_.total);
  report.set_queue_seconds(seconds_.queue);
  report.set_receive_seconds(seconds_.receive);
  report.set_compute_seconds(seconds_.compute);
  report.set_send_seconds(seconds_.send);
  report.set_total_seconds(seconds_.total);
  report.set_bytes_exchanged_planned(plan_->costs.bytes_exchanged);
  report.set_bytes_exchanged_naive(plan_->costs.bytes_exchanged_naive);
  report.set_ring_generation(generation);
  int64_t exchanged = 0;
  for (v1::WorkerReport& worker : run.Reports()) {
    exchanged += worker.bytes_received();
    services_.metrics.SetWorkerJob(worker.worker(), worker.memory_peak_bytes(),
                                   worker.memory_predicted_bytes());
    *report.add_workers() = std::move(worker);
  }
  report.set_bytes_exchanged(exchanged);
  services_.metrics.AddExchanged(exchanged);
  return report;
}

}  // namespace hilbert_ring::server
