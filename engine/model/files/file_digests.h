// SHA-256 of files. A file whose stamp has not changed is read once.
//
//   FileDigests digests;                                     // one for a process
//   ASSIGN_OR_RETURN(const Digest digest, digests.Of(file));
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"
#include "engine/model/files/readable_file.h"

namespace hilbert_ring {

using Digest = std::array<std::byte, 32>;

Digest Sha256(std::span<const std::byte> bytes);

// Errors: ReadableFile::Read, CheckUnchanged; CANCELLED once `stopped` (may be null) is true.
absl::StatusOr<Digest> Sha256Of(const ReadableFile& file,
                                const std::atomic<bool>* stopped = nullptr);

// 64 hex digits in lower case.
std::string HexOf(const Digest& digest);

// Thread-safe. Two threads may both read a new file.
class FileDigests {
 public:
  // now: the clock of the file system.
  explicit FileDigests(std::function<absl::Time()> now = [] { return absl::Now(); })
      : now_(std::move(now)) {}

  // Errors: Sha256Of.
  absl::StatusOr<Digest> Of(const ReadableFile& file);

  // Ends all reads; called at the end of the process.
  void Stop() { stopped_ = true; }

  // Returns whether the last change is so old that a later one shows in the change time, which
  // programs cannot set. Digests of unsettled files are not remembered.
  bool Settled(const ReadableFile& file) const;

  int64_t bytes_read() const;

 private:
  const std::function<absl::Time()> now_;
  std::atomic<bool> stopped_ = false;
  mutable Mutex mutex_;
  std::map<FileStamp, Digest> known_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_read_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hilbert_ring
