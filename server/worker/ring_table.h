// This worker's ends of rings, by ring id.
//
//   table.Prepare({...}, deadline);            // PrepareRing: our address for the peers
//   table.Connect(id, generation, blobs, d);   // ConnectRing: theirs; connected to all on return
//   auto lease = table.Take(id, generation);   // Run: the communicator, for one job
//   lease->Finish(steps);                      // the job ended well; else the ring is given up
//   table.Close(id, generation);               // CloseRing
//
// A ring has a generation: what is said of an older one than we know is refused.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/comm/communicator.h"
#include "server/worker/ring_transport.h"

namespace hilbert_ring::server {

struct RingEnd {
  std::string ring_id;
  int64_t generation = 0;
  int rank = 0;
  int size = 1;
};

// Thread-safe.
class RingTable {
 private:
  struct Ring;

 public:
  // The use of a ring by one job.
  class Lease {
   public:
    Lease(Lease&&) = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease();

    Communicator* communicator() const;
    int64_t first_step() const;

    // The job ended well and used `steps` step numbers from first_step on.
    void Finish(int64_t steps);

   private:
    friend class RingTable;
    Lease(RingTable* table, std::shared_ptr<Ring> ring) : table_(table), ring_(std::move(ring)) {}
    RingTable* table_;
    std::shared_ptr<Ring> ring_;  // null when finished or moved from
  };

  explicit RingTable(RingTransport transport) : transport_(std::move(transport)) {}

  // Closes all rings and waits for their threads.
  ~RingTable();

  // FAILED_PRECONDITION (RING_LEASED) when this or a newer generation is known,
  // INVALID_ARGUMENT for a rank outside the ring or fewer than two, and the transport's errors. An
  // older generation is closed.
  absl::StatusOr<std::string> Prepare(const RingEnd& end, Deadline deadline);

  // FAILED_PRECONDITION (RING_LEASED) when that generation is not being formed.
  absl::Status Connect(const std::string& ring_id, int64_t generation,
                       std::vector<std::string> blobs, Deadline deadline);

  // This generation and older ones. A job that uses it sees ABORTED.
  void Close(const std::string& ring_id, int64_t generation);

  const std::string& transport() const { return transport_.name; }

  // Rings that this worker is in.
  int count() const;

  // Of a coordinator that is gone: nobody else would.
  void CloseAll();

  // FAILED_PRECONDITION when the ring is not there in that generation, or another job has it.
  absl::StatusOr<Lease> Take(const std::string& ring_id, int64_t generation);

 private:
  void Form(const std::shared_ptr<Ring>& ring, Deadline deadline);
  void Abort(Ring& ring) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<Ring> Find(const std::string& ring_id, int64_t generation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RingTransport transport_;
  mutable Mutex mutex_;
  ConditionVariable changed_;
  // Shared: a thread that forms a ring, or a job, may outlive the entry.
  std::map<std::string, std::shared_ptr<Ring>> rings_ ABSL_GUARDED_BY(mutex_);
  int forming_ ABSL_GUARDED_BY(mutex_) = 0;  // threads
};

}  // namespace hilbert_ring::server
