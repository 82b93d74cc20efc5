// SHA-256 of files, which are read once: what a file's stamp says has not changed is not read
// again.
//
//   FileDigests digests;                                     // of a process
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

// Of the file's bytes as they are now. Errors of ReadableFile::Read and CheckUnchanged; CANCELLED
// once `stopped`, where it is given, is true.
absl::StatusOr<Digest> Sha256Of(const ReadableFile& file,
                                const std::atomic<bool>* stopped = nullptr);

// 64 digits, in lower case.
std::string HexOf(const Digest& digest);

// Thread-safe. Two threads that ask for the same new file both read it.
class FileDigests {
 public:
  // now: the time by the clock of the files' system.
  explicit FileDigests(std::function<absl::Time()> now = [] { return absl::Now(); })
      : now_(std::move(now)) {}

  // Errors of Sha256Of.
  absl::StatusOr<Digest> Of(const ReadableFile& file);

  // For a process that ends: files that are being read are not read to their ends, nor others.
  void Stop() { stopped_ = true; }

  // Whether the file was last changed so long ago that a later change shows in its stamp: by its
  // change time, which no program can set as it can the time of modification. Digests of others are
  // not remembered.
  bool Settled(const ReadableFile& file) const;

  int64_t bytes_read() const;  // so far

 private:
  const std::function<absl::Time()> now_;
  std::atomic<bool> stopped_ = false;
  mutable Mutex mutex_;
  std::map<FileStamp, Digest> known_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_read_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hilbert_ring
