#include "server/access/quotas.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

absl::Status CheckAlone(const Caller& caller, absl::string_view what, int64_t asked,
                        int64_t limit) {
  if (limit == 0 || asked <= limit) return absl::OkStatus();
  return wire::ErrorOf(wire::reason::kOverQuota,
                       absl::StrCat("the job has ", asked, " ", what, ", the quota of ",
                                    caller.name, " is ", limit));
}

// Neither sum nor difference overflows: admitted jobs keep each value below 2^62.
absl::Status CheckTogether(const Caller& caller, absl::string_view what, int64_t taken,
                           int64_t asked, int64_t limit) {
  if (limit == 0 || taken <= limit - asked) return absl::OkStatus();
  return wire::ErrorOf(wire::reason::kQuota,
                       absl::StrCat("jobs of ", caller.name, " have ", taken, " ", what,
                                    ", this one has ", asked, ", the quota is ", limit));
}

}  // namespace

absl::StatusOr<Quotas::Share> Quotas::Reserve(const Caller& caller, const Demand& job) {
  const Quota& quota = caller.quota;
  const MutexLock lock(mutex_);
  Taken& taken = taken_[caller.name];
  absl::Status status = CheckAlone(caller, "tokens", job.tokens, quota.tokens);
  if (status.ok()) status = CheckAlone(caller, "bytes", job.bytes, quota.bytes);
  if (status.ok()) status = CheckTogether(caller, "jobs", taken.jobs, 1, quota.jobs);
  if (status.ok()) status = CheckTogether(caller, "tokens", taken.tokens, job.tokens, quota.tokens);
  if (status.ok()) status = CheckTogether(caller, "bytes", taken.bytes, job.bytes, quota.bytes);
  if (!status.ok()) {
    if (taken.jobs == 0) taken_.erase(caller.name);
    return status;
  }
  ++taken.jobs;
  taken.tokens += job.tokens;
  taken.bytes += job.bytes;
  return Share(this, caller.name, job);
}

Quotas::Share::~Share() {
  if (quotas_ == nullptr) return;
  const MutexLock lock(quotas_->mutex_);
  const auto found = quotas_->taken_.find(name_);
  Taken& taken = found->second;
  --taken.jobs;
  taken.tokens -= job_.tokens;
  taken.bytes -= job_.bytes;
  if (taken.jobs == 0) quotas_->taken_.erase(found);
}

}  // namespace hilbert_ring::server
