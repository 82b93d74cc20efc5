#include "engine/order/order_cache.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring {
namespace {

// Bounds the list, which is searched linearly: evaluated orders take almost no bytes.
constexpr size_t kMaxEntries = 1024;

}  // namespace

absl::StatusOr<std::shared_ptr<const Permutation>> OrderCache::Get(
    const JobSpec& spec, std::span<const int64_t> coords) {
  // An identity is free, and wrong coordinates must fail as without a cache.
  if (!spec.ordering.has_value() || spec.ordering->coordinate_axes > 0 || !coords.empty()) {
    return Permutation::Make(spec, coords);
  }
  Entry wanted = {*spec.ordering, {}, nullptr};
  wanted.ordering.scope = OrderScope::kQkv;  // the scope does not affect the order
  for (const Sequence& keys : Sequences(spec)) wanted.lengths.push_back(keys.length);
  const auto find = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
      return e.ordering == wanted.ordering && e.lengths == wanted.lengths;
    });
    if (entry != entries_.end()) entries_.splice(entries_.begin(), entries_, entry);
    return entry;
  };
  {
    const MutexLock lock(mutex_);
    if (const auto entry = find(); entry != entries_.end()) {
      ++hits_;
      return entry->order;
    }
    ++misses_;
  }

  // Made without the lock: jobs of other shapes do not wait. Concurrent jobs of one shape may each
  // make it; the first is kept.
  ASSIGN_OR_RETURN(wanted.order, Permutation::Make(spec, coords));
  const auto entry_bytes = [](const Entry& e) {
    return static_cast<int64_t>(sizeof(Entry) + e.ordering.grid.size() * sizeof(int64_t) +
                                e.lengths.size() * sizeof(int64_t)) +
           e.order->resident_bytes();
  };
  const MutexLock lock(mutex_);
  if (const auto entry = find(); entry != entries_.end()) return entry->order;
  const int64_t bytes = entry_bytes(wanted);
  if (bytes > max_bytes_) return wanted.order;
  while (bytes_ + bytes > max_bytes_ || entries_.size() >= kMaxEntries) {
    bytes_ -= entry_bytes(entries_.back());
    entries_.pop_back();
  }
  bytes_ += bytes;
  entries_.push_front(std::move(wanted));
  return entries_.front().order;
}

int64_t OrderCache::resident_bytes() const {
  const MutexLock lock(mutex_);
  return bytes_;
}

int64_t OrderCache::hits() const {
  const MutexLock lock(mutex_);
  return hits_;
}

int64_t OrderCache::misses() const {
  MutexLock lock(mutex_);
  return misses_;
}

}  // namespace hilbert_ring
