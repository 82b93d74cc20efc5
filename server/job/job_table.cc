#include "server/job/job_table.h"

#include "absl/strings/str_cat.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

absl::Status Fenced(const std::string& job_id, int attempt, int newer) {
  return wire::ErrorOf(
      wire::reason::kAttemptFenced,
      absl::StrCat("attempt ", attempt, " of job ", job_id, " gave way to attempt ", newer));
}

}  // namespace

absl::StatusOr<JobTable::Entry> JobTable::Enter(const std::string& caller,
                                                const std::string& job_id, int attempt,
                                                JobStop* stop, const JobCourse* course) {
  const Key key(caller, job_id);
  const MutexLock lock(mutex_);
  const auto found = jobs_.find(key);
  if (found != jobs_.end()) {
    const int runs = found->second.attempt;
    if (runs == attempt) {
      return wire::ErrorOf(wire::reason::kJobRunning,
                           absl::StrCat("attempt ", attempt, " of job ", job_id, " runs already"));
    }
    if (runs > attempt) return Fenced(job_id, attempt, runs);
    // The entry stays while this lock is held; a stop waits for no job.
    found->second.stop->Request(Fenced(job_id, runs, attempt));
  }
  jobs_[key] = {attempt, stop, course};
  return Entry(stop, [this, key, stop](const void*) { Leave(key, stop); });
}

void JobTable::Leave(const Key& key, const JobStop* stop) {
  const MutexLock lock(mutex_);
  const auto found = jobs_.find(key);
  // A newer attempt may have replaced it.
  if (found != jobs_.end() && found->second.stop == stop) jobs_.erase(found);
}

std::vector<v1::Job> JobTable::List(const std::optional<std::string>& caller) const {
  std::vector<v1::Job> jobs;
  const Clock::time_point now = time_.Now();
  const MutexLock lock(mutex_);
  for (const auto& [key, job] : jobs_) {
    if (caller && key.first != *caller) continue;
    v1::Job& listed = jobs.emplace_back();
    listed.set_job_id(key.second);
    listed.set_attempt(job.attempt);
    listed.set_state(NamesOf(job.course->phase()).state);
    listed.set_tokens(job.course->tokens());
    listed.set_seconds(SecondsBetween(job.course->opened(), now));
    listed.set_workers(job.course->workers());
    listed.set_fraction(job.course->fraction());
    listed.set_caller(key.first);
    listed.set_stream(job.course->stream());
    listed.set_epochs(job.course->epochs());
  }
  return jobs;
}

void JobTable::NoteEnded(EndedJob job) {
  const MutexLock lock(mutex_);
  ended_.push_front(std::move(job));
  if (ended_.size() > kMostEnded) ended_.pop_back();
}

std::vector<EndedJob> JobTable::Ended() const {
  const MutexLock lock(mutex_);
  return {ended_.begin(), ended_.end()};
}

std::array<int, kJobPhases> JobTable::CountByPhase() const {
  std::array<int, kJobPhases> counts = {};
  const MutexLock lock(mutex_);
  for (const auto& [key, job] : jobs_) ++counts[static_cast<int>(job.course->phase())];
  return counts;
}

absl::Status JobTable::Cancel(const std::string& caller, const std::string& job_id,
                              const std::string& by) {
  const MutexLock lock(mutex_);
  const auto found = jobs_.find({caller, job_id});
  if (found == jobs_.end()) {
    return wire::ErrorOf(wire::reason::kJobNotFound,
                         absl::StrCat("no job '", job_id, "' of this caller waits or runs"));
  }
  found->second.stop->Request(wire::ErrorOf(
      wire::reason::kCancelledByCaller, absl::StrCat("job ", job_id, " was cancelled by ", by)));
  return absl::OkStatus();
}

void JobTable::StopAll(const absl::Status& why) {
  const MutexLock lock(mutex_);
  for (const auto& [key, job] : jobs_) job.stop->Request(why);
}

}  // namespace hilbert_ring::server
