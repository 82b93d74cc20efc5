#include "server/cluster/suspects.h"

#include <utility>

#include "engine/base/mutex.h"

namespace hilbert_ring::server {

Suspects::Suspects(std::function<void(const Member&)> quarantine)
    : quarantine_(std::move(quarantine)) {}

bool Suspects::Note(const std::shared_ptr<const Member>& worker, int64_t job) {
  {
    const MutexLock lock(mutex_);
    std::erase_if(records_, [](const auto& record) { return record.first.expired(); });
    Record& record = records_.try_emplace(worker, Record{.job = job}).first->second;
    if (record.quarantined) return true;
    if (record.job == job) return false;
    record.quarantined = true;
  }
  quarantine_(*worker);
  return true;
}

}  // namespace hilbert_ring::server
