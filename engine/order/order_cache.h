// A bounded cache of orders that follow from the spec alone (no coordinates), so that jobs of one
// shape share one permutation. Least recently used orders leave first.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/order/permutation.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// Thread-safe.
class OrderCache {
 public:
  // Keeps orders of at most max_bytes together; an order larger than that is made and not kept.
  explicit OrderCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // The order of a spec; as Permutation::Make. Specs with coordinates are never cached.
  absl::StatusOr<std::shared_ptr<const Permutation>> Get(const JobSpec& spec,
                                                         std::span<const int64_t> coords);

  int64_t resident_bytes() const;
  int64_t hits() const;

 private:
  struct Entry {
    Ordering ordering;
    std::vector<int64_t> lengths;
    std::shared_ptr<const Permutation> order;
  };
  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // guarded by mutex_; most recently used first
  int64_t bytes_ = 0;         // guarded by mutex_
  int64_t hits_ = 0;          // guarded by mutex_
};

}  // namespace hilbert_ring
