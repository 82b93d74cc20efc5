// A bounded least-recently-used cache of orders that follow from the spec alone (no coordinates).
// Jobs of one shape share a permutation.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/order/permutation.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// Thread-safe.
class OrderCache {
 public:
  // Keeps at most max_bytes of orders. A larger order is made but not kept.
  explicit OrderCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // Returns the order as Permutation::Make does. Orders by coordinates are not cached.
  absl::StatusOr<std::shared_ptr<const Permutation>> Get(const JobSpec& spec,
                                                         std::span<const int64_t> coords);

  int64_t resident_bytes() const;
  int64_t hits() const;
  int64_t misses() const;

 private:
  struct Entry {
    Ordering ordering;
    std::vector<int64_t> lengths;
    std::shared_ptr<const Permutation> order;
  };
  const int64_t max_bytes_;
  mutable Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // most recently used first
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t hits_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t misses_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hilbert_ring
