#include "server/coordinator/job_table.h"

#include "absl/strings/str_cat.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

absl::Status Fenced(const std::string& job_id, int attempt, int newer) {
  return wire::WithReason(absl::AbortedError(absl::StrCat("attempt ", attempt, " of job ", job_id,
                                                          " gave way to attempt ", newer)),
                          "ATTEMPT_FENCED");
}

}  // namespace

absl::StatusOr<JobTable::Entry> JobTable::Enter(const std::string& caller,
                                                const std::string& job_id, int attempt,
                                                JobStop* stop) {
  const std::pair<std::string, std::string> key(caller, job_id);
  const std::lock_guard lock(mutex_);
  const auto found = jobs_.find(key);
  if (found != jobs_.end()) {
    const int runs = found->second.attempt;
    if (runs == attempt) {
      return wire::WithReason(absl::AlreadyExistsError(absl::StrCat("attempt ", attempt, " of job ",
                                                                    job_id, " runs already")),
                              "JOB_RUNNING");
    }
    if (runs > attempt) return Fenced(job_id, attempt, runs);
    // Its entry cannot go meanwhile: that needs this lock. A stop only tells, it never waits for
    // jobs.
    found->second.stop->Request(Fenced(job_id, runs, attempt));
  }
  jobs_[key] = {attempt, stop};
  return Entry(this, key, stop);
}

JobTable::Entry::~Entry() {
  if (table_ == nullptr) return;
  const std::lock_guard lock(table_->mutex_);
  const auto found = table_->jobs_.find(key_);
  // A newer attempt may have the place by now.
  if (found != table_->jobs_.end() && found->second.stop == stop_) table_->jobs_.erase(found);
}

void JobTable::StopAll(const absl::Status& why) {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, job] : jobs_) job.stop->Request(why);
}

}  // namespace hilbert_ring::server
