// Memory that a model's packed weights lie in. Processes of one host and user share it: the first
// one fills it, the others map what is there.
//
//   ASSIGN_OR_RETURN(auto memory, WeightMemory::Shared("/dev/shm", key, bytes));
//   if (!memory->filled()) {
//     ...                                       // memory->data() is written
//     RETURN_IF_ERROR(memory->Seal());          // from here on it is only read
//   }
//
// It is a file without a place on disk, named by the key, which holds its pages while a process has
// it. A lock on it says whether one fills it (exclusive) or who reads it (shared); a process that
// dies leaves its lock. The last one that has it removes it. Where all were killed it stays, until
// RemoveUnused or the next one with the key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace hilbert_ring {

// Any number of threads may read data() once it is filled.
class WeightMemory {
 public:
  // Of this process alone. RESOURCE_EXHAUSTED without memory.
  static absl::StatusOr<std::unique_ptr<WeightMemory>> Private(int64_t bytes);

  // folder: of a file system in memory. key: letters and digits; what the bytes depend on, all of
  // it. What another process has filled is trusted when it belongs to this user and has the
  // checksum that was taken when it was sealed. UNAVAILABLE: another process has been filling it
  // for longer than `wait`, or has not gone on for `patience`; RESOURCE_EXHAUSTED: the file system
  // is full; FAILED_PRECONDITION: the name is taken by something else; else the code follows errno.
  static absl::StatusOr<std::unique_ptr<WeightMemory>> Shared(const std::string& folder,
                                                              const std::string& key, int64_t bytes,
                                                              absl::Duration wait,
                                                              absl::Duration patience = kPatience);

  // In which a matrix of 1 GiB is read from files of 55 MiB/s, and 20 GiB are summed up. Where
  // that takes longer, whoever waits packs its own.
  static constexpr absl::Duration kPatience = absl::Seconds(20);

  // Files of this user's that no process has. Errors are passed over.
  static void RemoveUnused(const std::string& folder);

  virtual ~WeightMemory() = default;

  virtual std::byte* data() = 0;  // aligned to a page; to be read alone once it is filled
  virtual int64_t bytes() const = 0;
  virtual bool filled() const = 0;
  virtual bool shared() const = 0;

  // Who fills it tells those that wait that it goes on: after each matrix.
  virtual void NoteProgress() {}

  // All of it is written. Errors: the code follows errno.
  virtual absl::Status Seal() = 0;
};

}  // namespace hilbert_ring
