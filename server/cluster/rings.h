// Rings of workers. A ring is formed when a job needs it and kept for the next job of the same
// members. After a job with an error it is closed, and formed again as another generation.
//
//   auto lease = rings.Lease(members, job_id, stop);
//   ... RunOpen{ring_id, generation} to every member ...
//   lease->Keep();                       // after success; else the destructor closes the ring
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/cluster/membership.h"
#include "server/process/job_stop.h"

namespace hilbert_ring::server {

// FAILED_PRECONDITION (MIXED_TRANSPORTS) names two members with different transports.
absl::Status CheckOneTransport(const Members& members);

// Thread-safe. A ring is leased by one job at a time.
class Rings {
 public:
  class Lease {
   public:
    Lease(Lease&& other) noexcept
        : rings_(other.rings_),
          ring_id_(std::move(other.ring_id_)),
          generation_(other.generation_) {
      other.rings_ = nullptr;
    }
    Lease& operator=(Lease&&) = delete;
    ~Lease();

    const std::string& ring_id() const { return ring_id_; }
    int64_t generation() const { return generation_; }

    void Keep();

   private:
    friend class Rings;
    Lease(Rings* rings, std::string ring_id, int64_t generation)
        : rings_(rings), ring_id_(std::move(ring_id)), generation_(generation) {}
    Rings* rings_;  // null when kept or moved from
    std::string ring_id_;
    int64_t generation_;
  };

  // Called after each try to form a ring, without locks held. again: the ring was formed before.
  using Formed = std::function<void(const absl::Status& status, bool again, double seconds)>;

  explicit Rings(Formed formed = nullptr);

  // Leases the ring of the members by rank, and forms it if needed. Returns errors with the
  // worker's name, FAILED_PRECONDITION (RING_LEASED) if another job has it, and those of
  // CheckOneTransport.
  absl::StatusOr<Lease> Take(const Members& members, const std::string& job_id,
                             const JobStop& stop);

  std::vector<v1::Ring> Describe() const;

  int64_t generation() const;             // the last
  int64_t hits() const { return hits_; }  // calls of Take that found the ring formed
  int64_t misses() const { return misses_; }

 private:
  static constexpr size_t kMaxRings = 8;
  static constexpr std::chrono::seconds kFormTimeout{20};
  // Limits of closing: of all members together, one after the other, and the least of each.
  static constexpr std::chrono::milliseconds kCloseTimeout{2000}, kLeastCloseTimeout{100};

  struct Ring {
    std::string id;
    int64_t generation = 0;
    Members members;
    std::string job_id;  // that leases it; empty: idle
    bool formed = false;
    bool stood = false;  // formed before
  };

  absl::Status Form(const Ring& ring, const JobStop& stop) const;
  static void Close(const Ring& ring);
  void Release(const std::string& ring_id, bool keep);
  std::list<Ring>::iterator Find(const std::string& ring_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes rings with departed members, and the oldest beyond kMaxRings. The caller closes them.
  std::vector<Ring> TakeStale(const Members& wanted);

  const Formed formed_;  // may be null
  std::atomic<int64_t> hits_ = 0, misses_ = 0;
  const std::string prefix_;  // of ring ids, drawn for each coordinator
  mutable Mutex mutex_;
  int64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;  // the last
  int64_t numbered_ ABSL_GUARDED_BY(mutex_) = 0;    // the last
  std::list<Ring> rings_ ABSL_GUARDED_BY(mutex_);   // last used first
};

}  // namespace hilbert_ring::server
