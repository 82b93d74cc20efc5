#include "server/job/pooled_parts.h"

namespace hilbert_ring::server {

void PooledParts::Add(int rank, int64_t state, PooledPart part) {
  const MutexLock lock(mutex_);
  parts_[{state, rank}].push_back(std::move(part));
}

void PooledParts::AddTo(int64_t state, SlidePool& pool) const {
  const MutexLock lock(mutex_);
  for (const auto& [key, parts] : parts_) {
    if (key.first != state) continue;
    for (const PooledPart& part : parts) pool.Add(part);
  }
}

void PooledParts::Clear() {
  const MutexLock lock(mutex_);
  parts_.clear();
}

}  // namespace hilbert_ring::server
