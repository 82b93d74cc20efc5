#include "client/cpp/attend_many.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/connector.h"
#include "client/cpp/packed_jobs.h"
#include "client/cpp/service.h"
#include "client/cpp/steady_clock.h"
#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

constexpr size_t kAtOnce = 4;  // calls

absl::Status Check(const SmallJob& job) {
  RETURN_IF_ERROR(CheckInputs(job.inputs));
  RETURN_IF_ERROR(CheckOutputs(job.inputs.spec, job.outputs));
  if (BytesOf(job) <= wire::kMaxPayloadBytes) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("rows of the job, or its results, take ", BytesOf(job),
                                            " bytes, must be at most ", wire::kMaxPayloadBytes,
                                            ": call Attend"));
}

bool MayBeOneJobsError(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsOutOfRange(status) ||
         absl::IsFailedPrecondition(status) || absl::IsDataLoss(status) ||
         (absl::IsResourceExhausted(status) && !wire::MayHelpLater(status));
}

class ManyJobs {
 public:
  ManyJobs(std::span<const SmallJob> jobs, const JobOptions& options)
      : jobs_(jobs), options_(options), ends_(jobs.size()) {
    if (!options_.timing.now) options_.timing.now = SteadyNow;
    begun_ = options_.timing.now();
    Pack right;
    for (size_t i = 0; i < jobs.size(); ++i) {
      if (absl::Status status = Check(jobs[i]); !status.ok()) {
        ends_[i] = std::move(status);
        continue;
      }
      const AttendInputs& inputs = jobs[i].inputs;
      tokens_ += inputs.spec.tokens;
      bytes_to_send_ += std::ssize(inputs.q) + std::ssize(inputs.k) + std::ssize(inputs.v);
      right.push_back(i);
    }
    waiting_ = PacksOf(jobs, right, std::min(options.chunk_bytes, wire::kMaxPayloadBytes));
    lanes_ = std::clamp<size_t>(waiting_.size(), 1, kAtOnce);
  }

  std::vector<absl::StatusOr<v1::Report>> Run(const Connector& connector) {
    {
      std::vector<std::jthread> others(lanes() - 1);
      for (std::jthread& lane : others) {
        lane = std::jthread([this, connector] { RunLane(connector); });
      }
      RunLane(connector);
    }
    const MutexLock lock(mutex_);
    std::vector<absl::StatusOr<v1::Report>> reports;
    reports.reserve(ends_.size());
    for (auto& end : ends_) {
      reports.push_back(end ? *std::move(end) : absl::StatusOr<v1::Report>(over_));
    }
    return reports;
  }

 private:
  size_t lanes() {
    const MutexLock lock(mutex_);
    return lanes_;
  }

  void RunLane(Connector connector) {
    while (const std::optional<Pack> pack = Next()) {
      bool left = false;
      JobProgress told;
      const JobOptions options = OptionsOf(*pack, left, told);
      const absl::Status status = Call(connector, *pack, options);
      if (status.ok()) continue;
      Forget(told);
      if (left) return;
      Fail(*pack, status);
    }
  }

  std::optional<Pack> Next() {
    const MutexLock lock(mutex_);
    if (waiting_.empty() || !over_.ok()) {
      --lanes_;
      return std::nullopt;
    }
    Pack pack = std::move(waiting_.front());
    waiting_.pop_front();
    return pack;
  }

  // `left` becomes true if the service has no room for so many calls; the lane then ends, and the
  // pack waits again. `told` is the pack's last progress. Both outlive the call.
  JobOptions OptionsOf(const Pack& pack, bool& left, JobProgress& told) {
    JobOptions options = options_;
    options.job_id = jobs_[pack.front()].job_id;
    options.want_trace = false;
    options.spent += options_.timing.now() - begun_;
    options.final = [&](const absl::Status& failure) {
      if (options_.final && options_.final(failure)) return true;
      if (!wire::MayHelpLater(failure)) return false;
      const MutexLock lock(mutex_);
      if (lanes_ == 1) return false;
      --lanes_;
      waiting_.push_front(pack);
      left = true;
      return true;
    };
    if (options_.cancelled) options.cancelled = [this] { return Cancelled(); };
    if (options_.progress) {
      options.progress = [this, &told](const JobProgress& progress) { Tell(progress, told); };
    }
    return options;
  }

  absl::Status Call(Connector& connector, const Pack& pack, const JobOptions& options) {
    if (pack.size() == 1) {
      const SmallJob& job = jobs_[pack.front()];
      auto report = Attend(connector, job.inputs, job.outputs, options);
      RETURN_IF_ERROR(report.status());
      ends_[pack.front()] = *std::move(report);
      return absl::OkStatus();
    }
    PackedJobs packed(jobs_, pack);
    ASSIGN_OR_RETURN(const v1::Report report,
                     Attend(connector, packed.inputs(), packed.outputs(), options));
    std::vector<v1::Report> reports = packed.Take(report);
    for (size_t i = 0; i < pack.size(); ++i) ends_[pack[i]] = std::move(reports[i]);
    return absl::OkStatus();
  }

  void Fail(const Pack& pack, const absl::Status& status) {
    const bool cancelled = absl::IsCancelled(status) && options_.cancelled && Cancelled();
    const MutexLock lock(mutex_);
    if (pack.size() > 1 && MayBeOneJobsError(status)) {
      const auto middle = pack.begin() + std::ssize(pack) / 2;
      waiting_.emplace_front(middle, pack.end());
      waiting_.emplace_front(pack.begin(), middle);
      return;
    }
    for (const size_t job : pack) ends_[job] = status;
    if (cancelled || absl::IsUnavailable(status) || absl::IsUnauthenticated(status) ||
        absl::IsPermissionDenied(status)) {
      over_ = status;
    }
  }

  bool Cancelled() {
    const MutexLock lock(caller_);
    return options_.cancelled();
  }

  // The caller gets this call's state, with the sums of all calls.
  void Tell(const JobProgress& news, JobProgress& told) {
    const MutexLock lock(caller_);
    Count(told, news);
    told = news;
    JobProgress together = news;
    together.bytes_sent = sent_;
    together.rows_placed = placed_;
    together.bytes_to_send = std::max(bytes_to_send_, sent_);
    together.rows = together.tokens = tokens_;
    options_.progress(together);
  }

  void Forget(const JobProgress& told) {
    const MutexLock lock(caller_);
    Count(told, {});
  }

  void Count(const JobProgress& before, const JobProgress& after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(caller_) {
    sent_ += after.bytes_sent - before.bytes_sent;
    placed_ += after.rows_placed - before.rows_placed;
  }

  const std::span<const SmallJob> jobs_;
  JobOptions options_;
  absl::Time begun_;
  int64_t tokens_ = 0, bytes_to_send_ = 0;
  std::vector<std::optional<absl::StatusOr<v1::Report>>> ends_;  // each set by one lane
  Mutex mutex_;
  std::deque<Pack> waiting_ ABSL_GUARDED_BY(mutex_);
  size_t lanes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status over_ ABSL_GUARDED_BY(mutex_);  // ends all calls
  Mutex caller_;                               // held while the caller's functions run
  int64_t sent_ ABSL_GUARDED_BY(caller_) = 0;
  int64_t placed_ ABSL_GUARDED_BY(caller_) = 0;
};

}  // namespace

std::vector<absl::StatusOr<v1::Report>> AttendMany(const std::string& server,
                                                   std::span<const SmallJob> jobs,
                                                   const JobOptions& options) {
  const Connector connector([&server, &options] { return Connect(server, options.access); });
  return ManyJobs(jobs, options).Run(connector);
}

std::vector<absl::StatusOr<v1::Report>> AttendMany(const std::shared_ptr<grpc::Channel>& channel,
                                                   std::span<const SmallJob> jobs,
                                                   const JobOptions& options) {
  return ManyJobs(jobs, options).Run(Connector(channel));
}

}  // namespace hilbert_ring::client
