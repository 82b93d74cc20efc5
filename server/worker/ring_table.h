// This worker's ends of rings, by ring id.
//
//   table.Prepare({...}, deadline);            // PrepareRing: our address
//   table.Connect(id, generation, blobs);      // ConnectRing: returns when connected to the peers
//   auto lease = table.Take(id, generation);   // Run: the communicator of a job
//   lease->Finish(steps);                      // after success; else the ring is closed
//   table.Close(id, generation);               // CloseRing
//
// Requests for an older generation of a ring than the known one are refused.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/comm/communicator.h"

namespace hilbert_ring::server {

struct RingEnd {
  std::string ring_id;
  int64_t generation = 0;
  int rank = 0;
  int size = 1;
};

// All workers of a ring have the same transport, known by its name.
struct RingTransport {
  std::string name;  // "gloo", "nccl"
  // Blocks until the ring stands. Thread-safe.
  std::function<absl::StatusOr<std::unique_ptr<Communicator>>(
      const RingEnd& end, Deadline deadline, const AllGather& all_gather,
      const std::function<bool()>& cancelled)>
      join;
};

// host: the address for peers. gpu: the ordinal; empty: the CPU computes.
RingTransport MakeRingTransport(const std::string& host, std::optional<int> gpu = std::nullopt);

class RingTable {  // thread-safe
 private:
  struct Ring;

 public:
  class Lease {  // a job's use of a ring; closes the ring unless finished
   public:
    Lease(Lease&&) = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease();

    Communicator* communicator() const;
    int64_t first_step() const;

    // The job succeeded, and used `steps` step numbers from first_step on.
    void Finish(int64_t steps);

   private:
    friend class RingTable;
    Lease(RingTable* table, std::shared_ptr<Ring> ring) : table_(table), ring_(std::move(ring)) {}
    RingTable* table_;
    std::shared_ptr<Ring> ring_;  // null when finished or moved from
  };

  explicit RingTable(RingTransport transport) : transport_(std::move(transport)) {}

  ~RingTable();  // closes all rings and waits for their threads

  // Closes an older generation. The deadline is that of the ring, also in Connect.
  // FAILED_PRECONDITION (RING_LEASED) if this or a newer one is known, the transport's errors.
  absl::StatusOr<std::string> Prepare(const RingEnd& end, Deadline deadline);

  // FAILED_PRECONDITION (RING_LEASED) unless that generation is being formed.
  absl::Status Connect(const std::string& ring_id, int64_t generation,
                       std::vector<std::string> blobs);

  // Closes this generation and older ones. A job that uses it gets ABORTED.
  void Close(const std::string& ring_id, int64_t generation);

  const std::string& transport() const { return transport_.name; }

  int count() const;

  void CloseAll();  // when the coordinator is lost

  // FAILED_PRECONDITION (RING_LEASED) without that generation, or if another job has it.
  absl::StatusOr<Lease> Take(const std::string& ring_id, int64_t generation);

 private:
  void Form(const std::shared_ptr<Ring>& ring, Deadline deadline);
  void Abort(Ring& ring) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<Ring> Find(const std::string& ring_id, int64_t generation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RingTransport transport_;
  mutable Mutex mutex_;
  ConditionVariable changed_;
  // Shared, because a job or a thread that forms the ring may outlive the entry.
  std::map<std::string, std::shared_ptr<Ring>> rings_ ABSL_GUARDED_BY(mutex_);
  int forming_ ABSL_GUARDED_BY(mutex_) = 0;  // threads
};

}  // namespace hilbert_ring::server
