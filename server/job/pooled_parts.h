// Workers' sums of an encoder's pooled states.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "engine/model/files/pooling.h"

namespace hilbert_ring::server {

class PooledParts {  // thread-safe
 public:
  void Add(int rank, int64_t state, PooledPart part);

  // In the order of ranks, so that the bits are reproducible.
  void AddTo(int64_t state, SlidePool& pool) const;

  void Clear();

 private:
  mutable Mutex mutex_;
  std::map<std::pair<int64_t, int>, std::vector<PooledPart>> parts_
      ABSL_GUARDED_BY(mutex_);  // by state and rank
};

}  // namespace hilbert_ring::server
