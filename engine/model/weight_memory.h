// Memory of packed weights that processes of one host and user share: the first fills it.
//
//   ASSIGN_OR_RETURN(auto memory, WeightMemory::Shared("/dev/shm", key, bytes, wait));
//   if (!memory->filled()) {
//     ...                                       // memory->data() is written
//     RETURN_IF_ERROR(memory->Seal());          // from here on it is only read
//   }
//
// It is a file in a memory file system, named by the key. Its filler holds an exclusive lock,
// readers shared ones; a process that dies drops its lock. The last process removes the file. If
// all are killed, it stays until RemoveUnused or the key's next use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace hilbert_ring {

// Any number of threads may read data() of filled memory.
class WeightMemory {
 public:
  // Memory of this process alone. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<WeightMemory>> Private(int64_t bytes);

  // folder: in a memory file system. key: letters and digits that name all that the bytes depend
  // on. A filled file must belong to this user and have its sealed checksum. Errors: UNAVAILABLE
  // (another process fills it for longer than `wait`, or without progress for `patience`),
  // RESOURCE_EXHAUSTED, FAILED_PRECONDITION (not this user's private file); else codes follow
  // errno.
  static absl::StatusOr<std::unique_ptr<WeightMemory>> Shared(const std::string& folder,
                                                              const std::string& key, int64_t bytes,
                                                              absl::Duration wait,
                                                              absl::Duration patience = kPatience);

  // Enough to read a matrix of 1 GiB at 55 MiB/s, and to checksum 20 GiB.
  static constexpr absl::Duration kPatience = absl::Seconds(20);

  // Removes this user's files that no process has open. Ignores errors.
  static void RemoveUnused(const std::string& folder);

  virtual ~WeightMemory() = default;

  virtual std::byte* data() = 0;  // aligned to a page; read-only once filled
  virtual int64_t bytes() const = 0;
  virtual bool filled() const = 0;
  virtual bool shared() const = 0;

  // Shows waiting processes that filling goes on: called after each matrix.
  virtual void NoteProgress() {}

  // Makes the written memory readable by others. Errors: the code follows errno.
  virtual absl::Status Seal() = 0;
};

}  // namespace hilbert_ring
