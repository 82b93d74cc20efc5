#include "client/cpp/attend_many.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/connector.h"
#include "client/cpp/service.h"
#include "client/cpp/steady_clock.h"
#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"
#include "wire/codec.h"
#include "wire/finite_rows.h"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

// Indices of jobs, in order.
using Pack = std::vector<size_t>;

constexpr size_t kAtOnce = 4;  // calls

constexpr int64_t kMostSequences = 1024;

// Returns a key: jobs with equal keys may share a pack. A job with an empty key has its own.
std::string AlikeOf(const SmallJob& job) {
  const JobSpec& spec = job.inputs.spec;
  if (!job.job_id.empty() || (spec.ordering && spec.ordering->coordinate_axes > 0) ||
      BiasAxes(spec) > 0) {
    return "";
  }
  v1::JobSpec common = wire::EncodeJobSpec(spec);
  common.clear_tokens();
  common.clear_sequence_lengths();
  common.clear_key_tokens();
  common.clear_key_sequence_lengths();
  return common.SerializeAsString() + (job.outputs.lse.empty() ? "" : "lse");
}

void CountRowsNotFinite(const SmallJob& job, v1::Report& report) {
  const JobSpec& spec = job.inputs.spec;
  const int64_t row_bytes = wire::TensorRowBytes(spec, v1::TENSOR_OUT);
  int64_t found = 0;
  report.set_first_row_not_finite(0);
  for (int64_t row = spec.tokens - 1; row >= 0; --row) {
    if (wire::IsFinite(spec.dtype, job.outputs.out.data() + row * row_bytes, row_bytes)) continue;
    report.set_first_row_not_finite(row);
    ++found;
  }
  report.set_rows_not_finite(found);
}

// Returns the larger of the rows' and the results' bytes, without coordinates.
int64_t BytesOf(const SmallJob& job) {
  const AttendInputs& inputs = job.inputs;
  return std::max(std::ssize(inputs.q) + std::ssize(inputs.k) + std::ssize(inputs.v),
                  std::ssize(job.outputs.out) + std::ssize(job.outputs.lse));
}

// Jobs that differ only in their tokens share packs of `limit_bytes`. A longer job, a job with an
// id and a job with coordinates have packs of their own. The jobs must be valid.
std::deque<Pack> PacksOf(std::span<const SmallJob> jobs, const Pack& chosen, int64_t limit_bytes) {
  struct Filling {
    Pack* pack = nullptr;
    int64_t bytes = 0, sequences = 0;
  };
  std::deque<Pack> packs;  // with stable addresses
  std::map<std::string, Filling> filling;
  for (const size_t number : chosen) {
    const SmallJob& job = jobs[number];
    const std::string alike = AlikeOf(job);
    Filling& last = filling[alike];
    const int64_t bytes = BytesOf(job);
    const int64_t sequences = std::max<int64_t>(1, std::ssize(job.inputs.spec.sequence_lengths));
    if (alike.empty() || last.pack == nullptr || last.bytes + bytes > limit_bytes ||
        last.sequences + sequences > kMostSequences) {
      last = {.pack = &packs.emplace_back()};
    }
    last.pack->push_back(number);
    last.bytes += bytes;
    last.sequences += sequences;
  }
  return packs;
}

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
    if (pack.size() > 1) return CallPacked(connector, pack, options);
    const SmallJob& job = jobs_[pack.front()];
    ASSIGN_OR_RETURN(ends_[pack.front()], Attend(connector, job.inputs, job.outputs, options));
    return absl::OkStatus();
  }

  // Runs one job of packed sequences, which do not see each other.
  absl::Status CallPacked(Connector& connector, const Pack& pack, const JobOptions& options) {
    const std::vector<std::byte> q = Joined(pack, &AttendInputs::q),
                                 k = Joined(pack, &AttendInputs::k),
                                 v = Joined(pack, &AttendInputs::v);
    AttendInputs inputs{.spec = jobs_[pack.front()].inputs.spec, .q = q, .k = k, .v = v};
    inputs.spec.tokens = 0;
    inputs.spec.key_tokens = 0;
    inputs.spec.sequence_lengths.clear();
    inputs.spec.key_sequence_lengths.clear();
    size_t out_bytes = 0, lse_bytes = 0;
    for (const size_t number : pack) {
      const SmallJob& job = jobs_[number];
      out_bytes += job.outputs.out.size();
      lse_bytes += job.outputs.lse.size();
      inputs.spec.tokens += job.inputs.spec.tokens;
      *inputs.spec.key_tokens += KeyTokens(job.inputs.spec);
      for (const SequencePair& pair : SequencePairs(job.inputs.spec)) {
        inputs.spec.sequence_lengths.push_back(pair.queries.length);
        inputs.spec.key_sequence_lengths.push_back(pair.keys.length);
      }
    }
    std::vector<std::byte> out(out_bytes), lse(lse_bytes);
    ASSIGN_OR_RETURN(const v1::Report report,
                     Attend(connector, inputs, {.out = out, .lse = lse}, options));
    std::span<const std::byte> out_left = out, lse_left = lse;
    const auto take = [](std::span<const std::byte>& from, std::span<std::byte> to) {
      std::ranges::copy(from.first(to.size()), to.begin());
      from = from.subspan(to.size());
    };
    for (const size_t number : pack) {
      const SmallJob& job = jobs_[number];
      take(out_left, job.outputs.out);
      take(lse_left, job.outputs.lse);
      v1::Report own = report;
      own.set_tokens(job.inputs.spec.tokens);
      if (report.rows_not_finite() > 0) CountRowsNotFinite(job, own);
      ends_[number] = std::move(own);
    }
    return absl::OkStatus();
  }

  std::vector<std::byte> Joined(const Pack& pack,
                                std::span<const std::byte> AttendInputs::*tensor) const {
    size_t bytes = 0;
    for (const size_t number : pack) bytes += (jobs_[number].inputs.*tensor).size();
    std::vector<std::byte> joined;
    joined.reserve(bytes);
    for (const size_t number : pack) {
      const std::span<const std::byte> rows = jobs_[number].inputs.*tensor;
      joined.insert(joined.end(), rows.begin(), rows.end());
    }
    return joined;
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
