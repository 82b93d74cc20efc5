// Jobs that run or wait, by caller and job id. A newer attempt of a job ends the older one.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
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

struct EndedJob {
  std::string caller;
  std::string job_id;
  std::string code;  // of its status
  int64_t tokens = 0;
  int workers = 0;
  JobSeconds seconds;
};

class JobTable {  // thread-safe
 public:
  explicit JobTable(const TimeSource& time = SystemTime()) : time_(time) {}

  using Entry = std::shared_ptr<const void>;  // its end takes the job from the table

  // `stop` and `course` outlive the entry. ALREADY_EXISTS (JOB_RUNNING) for a running attempt;
  // ABORTED (ATTEMPT_FENCED) for an older one, also as the stop's reason of an attempt that this
  // one replaces.
  absl::StatusOr<Entry> Enter(const std::string& caller, const std::string& job_id, int attempt,
                              JobStop* stop, const JobCourse* course);

  std::vector<v1::Job> List(const std::optional<std::string>& caller = std::nullopt) const;

  void NoteEnded(EndedJob job);
  std::vector<EndedJob> Ended() const;  // the last kMostEnded, newest first

  // Jobs of all callers with a valid spec, by JobPhase.
  std::array<int, kJobPhases> CountByPhase() const;

  // Stops the job with CANCELLED (CANCELLED_BY_CALLER). NOT_FOUND (JOB_NOT_FOUND).
  absl::Status Cancel(const std::string& caller, const std::string& job_id, const std::string& by);

  void StopAll(const absl::Status& why);

 private:
  struct Listed {
    int attempt = 0;
    JobStop* stop = nullptr;
    const JobCourse* course = nullptr;
  };
  using Key = std::pair<std::string, std::string>;
  static constexpr size_t kMostEnded = 20;

  void Leave(const Key& key, const JobStop* stop);

  const TimeSource& time_;
  mutable Mutex mutex_;
  std::list<EndedJob> ended_ ABSL_GUARDED_BY(mutex_);  // newest first
  std::map<Key, Listed> jobs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::server
