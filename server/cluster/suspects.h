// Workers that sent a row that is not what the definition says. One wrong row may be chance; a
// worker that sends wrong rows in two jobs is distrusted: it gets no more, and where this process
// spawned it another takes its place.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "server/cluster/membership.h"

namespace hilbert_ring::server {

// Thread-safe.
class Suspects {
 public:
  // `distrust` is called without locks held, once for each worker that is distrusted.
  explicit Suspects(std::function<void(const Member&)> distrust);

  // The worker sent a wrong row in that job. True when it is distrusted: the job is not the first.
  bool Note(const std::shared_ptr<const Member>& worker, const std::string& job_id);

 private:
  struct Record {
    std::string job_id;  // the first
    bool distrusted = false;
  };
  const std::function<void(const Member&)> distrust_;
  Mutex mutex_;
  // Of members that are there.
  std::map<std::weak_ptr<const Member>, Record, std::owner_less<>> records_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::server
