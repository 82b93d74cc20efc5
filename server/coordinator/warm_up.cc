#include "server/coordinator/warm_up.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "server/job/served_job.h"
#include "server/schedule/fit.h"
#include "wire/codec.h"

namespace hilbert_ring::server {
namespace {

// Gives each worker rows, and a need of the others' rows.
constexpr int64_t kTokensOfAWorker = 32;
constexpr int64_t kHeadDim = 8;  // so small that rows of 4000 workers are one chunk
constexpr int64_t kMostCheckedRows = 256;
constexpr int64_t kMostJobBytes = 1 << 20;                             // on a worker
constexpr int64_t kCopyBytes = int64_t{64} << 20;                      // beyond any such job
constexpr std::chrono::milliseconds kPause(500), kLongestPause(8000);  // doubled after each failure

JobSpec SpecFor(int workers) {
  JobSpec spec;
  spec.tokens = kTokensOfAWorker * workers;
  spec.heads = spec.kv_heads = 1;
  spec.head_dim = spec.value_dim = kHeadDim;
  spec.branches = {{.segment = spec.tokens, .dilation = 1}};
  return spec;
}

// Sends random rows and drops the outputs, which the job checks before its report.
class WarmUpClient final : public JobClient {
 public:
  WarmUpClient(const JobSpec& spec, const std::string& job_id, JobStop& stop)
      : stop_(stop), tokens_(spec.tokens) {
    *open_.mutable_spec() = wire::EncodeJobSpec(spec);
    open_.set_job_id(job_id);
    std::minstd_rand random;
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (std::vector<float>& rows : rows_) {
      rows.resize(tokens_ * kHeadDim);
      for (float& value : rows) value = uniform(random);
    }
  }

  JobStop& stop() override { return stop_; }
  void ReadAhead() override {}
  bool AwaitArrived(int64_t /*bytes*/, Input /*input*/) override { return true; }

  absl::StatusOr<bool> Read(ClientMessage& message, const JobStop& stop) override {
    RETURN_IF_ERROR(stop.why());
    if (!std::exchange(opened_, true)) {
      *message.request.mutable_open() = open_;
      return true;
    }
    if (next_ == rows_.size()) return false;
    constexpr v1::Tensor kTensors[] = {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V};
    v1::Chunk& chunk = *message.request.mutable_chunk();
    chunk.set_tensor(kTensors[next_]);
    chunk.set_rows(tokens_);
    const auto bytes = std::as_bytes(std::span(rows_[next_++]));
    message.payload = wire::Payload({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    message.checked = true;
    return true;
  }

  absl::Status Write(const v1::AttendResponse& /*response*/, const JobStop& stop) override {
    return stop.why();
  }
  absl::StatusOr<bool> Write(const v1::OutputChunk& /*chunk*/, std::string_view /*payload*/,
                             std::shared_ptr<const void> /*owner*/, Clock::duration /*patience*/,
                             const JobStop& stop, SendMode /*mode*/) override {
    RETURN_IF_ERROR(stop.why());
    return true;
  }
  absl::Status AwaitTaken(const JobStop& stop) override { return stop.why(); }
  void Offer(const v1::AttendResponse& /*response*/) override {}

 private:
  JobStop& stop_;
  const int64_t tokens_;
  v1::Open open_;
  std::array<std::vector<float>, 3> rows_;  // of Q, K and V
  bool opened_ = false;
  size_t next_ = 0;  // of rows_
};

}  // namespace

WarmUp::WarmUp(const JobServices& services, int needed, std::function<void()> passed)
    : settings_(services.limits.settings),
      jobs_(services.observers.time),
      copies_(kCopyBytes),
      services_(
          {.cluster = services.cluster,
           .memory = {.orders = services.memory.orders,
                      .models = services.memory.models,
                      .shards = services.memory.shards,
                      .threads = services.memory.threads,
                      .copies = copies_,
                      .order_memory = services.memory.order_memory,
                      .data_root = services.memory.data_root},
           .limits = {.settings = settings_, .quotas = quotas_, .plans = services.limits.plans},
           .observers = {.jobs = jobs_, .metrics = metrics_, .time = services.observers.time}}),
      needed_(needed),
      passed_(std::move(passed)),
      thread_([this] { Run(); }) {}

void WarmUp::Stop() {
  stop_.Request(absl::CancelledError("the service is stopping"));
  if (thread_.joinable()) thread_.join();
}

std::string WarmUp::Why() const {
  const MutexLock lock(mutex_);
  return why_;
}

void WarmUp::Run() {
  Membership& membership = services_.cluster.membership;
  Clock::duration pause = kPause;
  int64_t seen = 0;
  do {
    seen = membership.changes();
    const Members live = membership.Live();
    if (std::ssize(live) < needed_) continue;
    const absl::Status status = RunJob(live);
    if (!stop_.why().ok()) return;
    std::string why(status.message());
    {
      const MutexLock lock(mutex_);
      if (!why.empty() && why != why_) {
        spdlog::warn("the warm-up job over {} workers failed and is tried again: {}",
                     settings_.job_workers, why);
      }
      why_ = std::move(why);
    }
    if (status.ok()) return passed_();
    pause = std::min<Clock::duration>(2 * pause, kLongestPause);
  } while (membership.AwaitChange(seen, services_.observers.time.Now() + pause, stop_).ok());
}

// Waits for workers that back off or have a caller's job if the others are too few.
absl::Status WarmUp::RunJob(const Members& live) {
  const auto now = services_.observers.time.Now().time_since_epoch();
  const auto can = [this, now](const std::shared_ptr<const Member>& worker) {
    return services_.cluster.membership.Idle(*worker) && worker->backs_off_until.load() <= now &&
           worker->memory_limit_bytes >= kRunOverheadBytes + kMostJobBytes;
  };
  const int workers = std::max(needed_, static_cast<int>(std::ranges::count_if(live, can)));
  const JobSpec spec = SpecFor(workers);
  settings_.job_workers = settings_.max_retries = workers;
  settings_.check_rows = static_cast<int>(std::min(spec.tokens, kMostCheckedRows));
  settings_.max_tokens = spec.tokens;  // the service's limit is for callers
  WarmUpClient client(spec, absl::StrCat("warm-up-", ++tries_), stop_);
  ASSIGN_OR_RETURN(const v1::Report report,
                   ServedJob(services_, client, {.turns = "warm-up"}).Run());
  if (report.workers_size() < needed_) {
    std::string others;
    for (const auto& worker : live) {
      const bool shared = std::ranges::any_of(report.workers(), [&worker](const auto& part) {
        return part.worker() == worker->address;
      });
      if (!shared) absl::StrAppend(&others, " ", worker->address);
    }
    return absl::UnavailableError(absl::StrCat(report.workers_size(), " of ", needed_,
                                               " workers shared it, without:", others));
  }
  if (report.rows_checked() != settings_.check_rows) {
    return absl::InternalError(
        absl::StrCat(report.rows_checked(), " of ", settings_.check_rows, " rows were checked"));
  }
  return absl::OkStatus();
}

}  // namespace hilbert_ring::server
