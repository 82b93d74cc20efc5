// The jobs that run or wait, by caller and job id: an attempt is not run twice, and a newer attempt
// ends the older one.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "server/coordinator/job_stop.h"

namespace hilbert_ring::server {

// Thread-safe.
class JobTable {
 public:
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

  // `stop` must outlive the entry. ALREADY_EXISTS (JOB_RUNNING) when this attempt runs already;
  // ABORTED (ATTEMPT_FENCED) when a newer one does. An older one is stopped with ABORTED.
  absl::StatusOr<Entry> Enter(const std::string& caller, const std::string& job_id, int attempt,
                              JobStop* stop);

  // Stops all jobs.
  void StopAll(const absl::Status& why);

 private:
  struct Job {
    int attempt = 0;
    JobStop* stop = nullptr;
  };
  std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Job> jobs_;  // guarded by mutex_
};

}  // namespace hilbert_ring::server
