// Rings of workers: formed when a job needs one, kept for the next job over the same members, given
// up and formed anew, as the next generation, when a job on them did not end well.
//
//   auto lease = rings.Lease(members, job_id, stop);
//   ... RunOpen{ring_id, generation} to every member ...
//   lease->Keep();                       // the job ended well; else the ring is closed with the
//   lease
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

// FAILED_PRECONDITION (MIXED_TRANSPORTS) names two that cannot be in one ring.
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

    // The ring stays for the next job.
    void Keep();

   private:
    friend class Rings;
    Lease(Rings* rings, std::string ring_id, int64_t generation)
        : rings_(rings), ring_id_(std::move(ring_id)), generation_(generation) {}
    Rings* rings_;  // null when kept or moved from
    std::string ring_id_;
    int64_t generation_;
  };

  // Told of each try to form a ring: with what it ended, whether the ring stood before, and how
  // long it took. Called without locks held.
  using Formed = std::function<void(const absl::Status& status, bool again, double seconds)>;

  explicit Rings(Formed formed = nullptr);

  // The ring of the members by rank, formed if it is not there. Errors of the workers, naming them;
  // FAILED_PRECONDITION (RING_LEASED) when another job has it, and as CheckOneTransport.
  absl::StatusOr<Lease> Take(const Members& members, const std::string& job_id,
                             const JobStop& stop);

  std::vector<v1::Ring> Describe() const;

  int64_t generation() const;  // the last one given
  // Rings that stood when they were taken, and those that were to be formed.
  int64_t hits() const { return hits_; }
  int64_t misses() const { return misses_; }

 private:
  static constexpr size_t kMaxRings = 8;
  static constexpr std::chrono::seconds kFormTimeout{20};
  // Of all members together, who are told one after the other; but each has the least.
  static constexpr std::chrono::milliseconds kCloseTimeout{2000}, kLeastCloseTimeout{100};

  struct Ring {
    std::string id;
    int64_t generation = 0;
    Members members;
    std::string job_id;  // that leases it; empty: idle
    bool formed = false;
    bool stood = false;  // once
  };

  absl::Status Form(const Ring& ring, const JobStop& stop) const;
  static void Close(const Ring& ring);
  void Release(const std::string& ring_id, bool keep);
  // Rings with members that left, and the oldest ones where there are too many beside the wanted
  // one; to be closed by the caller.
  std::vector<Ring> TakeStale(const Members& wanted);

  const Formed formed_;  // may be null
  std::atomic<int64_t> hits_ = 0, misses_ = 0;
  const std::string prefix_;  // of ring ids; other coordinators have another
  mutable Mutex mutex_;
  int64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;  // the last one given
  int64_t numbered_ ABSL_GUARDED_BY(mutex_) = 0;    // rings so far
  std::list<Ring> rings_ ABSL_GUARDED_BY(mutex_);   // last used first
};

}  // namespace hilbert_ring::server
