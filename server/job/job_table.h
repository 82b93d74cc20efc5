// The jobs that run or wait, by caller and job id: an attempt is not run twice, a newer attempt
// ends the older one, and a caller sees and ends its own.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/job/job_course.h"
#include "server/metrics/metrics.h"
#include "server/process/job_stop.h"
#include "server/process/time_source.h"

namespace hilbert_ring::server {

// Of a job that is no longer there.
struct EndedJob {
  std::string caller;
  std::string job_id;
  std::string code;  // of its status
  int64_t tokens = 0;
  int workers = 0;
  JobSeconds seconds;
};

// Thread-safe.
class JobTable {
 public:
  explicit JobTable(const TimeSource& time = SystemTime()) : time_(time) {}

  // A job's place in the table; gone with it.
  class Entry {
   public:
    Entry(Entry&& other) noexcept
        : table_(other.table_), key_(std::move(other.key_)), stop_(other.stop_) {
      other.table_ = nullptr;
    }
    Entry& operator=(Entry&&) = delete;
    ~Entry();

   private:
    friend class JobTable;
    Entry(JobTable* table, std::pair<std::string, std::string> key, JobStop* stop)
        : table_(table), key_(std::move(key)), stop_(stop) {}
    JobTable* table_;  // null when moved from
    std::pair<std::string, std::string> key_;
    JobStop* stop_;
  };

  // `stop` and `course` must outlive the entry. ALREADY_EXISTS (JOB_RUNNING) when this attempt
  // runs already; ABORTED (ATTEMPT_FENCED) when a newer one does. An older one is stopped with
  // ABORTED.
  absl::StatusOr<Entry> Enter(const std::string& caller, const std::string& job_id, int attempt,
                              JobStop* stop, const JobCourse* course);

  // The caller's jobs, by job id, or those of all.
  std::vector<v1::Job> List(const std::string& caller) const;
  std::vector<v1::Job> ListAll() const;

  // The last kMostEnded are kept.
  void NoteEnded(EndedJob job);
  std::vector<EndedJob> Ended() const;  // the newest first

  // Of all callers, by JobPhase. A job is here once its spec is valid.
  std::array<int, kJobPhases> CountByPhase() const;

  // Stops a job of the caller with CANCELLED (CANCELLED_BY_CALLER), `by` whom. NOT_FOUND
  // (JOB_NOT_FOUND).
  absl::Status Cancel(const std::string& caller, const std::string& job_id, const std::string& by);

  // Stops all jobs.
  void StopAll(const absl::Status& why);

 private:
  struct Listed {
    int attempt = 0;
    JobStop* stop = nullptr;
    const JobCourse* course = nullptr;
  };
  using Jobs = std::map<std::pair<std::string, std::string>, Listed>;
  static constexpr size_t kMostEnded = 20;

  static v1::Job Describe(const Jobs::value_type& entry, Clock::time_point now);

  const TimeSource& time_;
  mutable Mutex mutex_;
  std::list<EndedJob> ended_ ABSL_GUARDED_BY(mutex_);  // the newest first
  Jobs jobs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::server
