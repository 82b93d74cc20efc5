// Results of a stream as raw rows, written as soon as they arrive.
//
//   ASSIGN_OR_RETURN(RawOutput out, RawOutput::Open("out.raw", {.stopped = Interrupted}));
//   out.Append(rows);
//   out.End();
//
// The first row, or the end of a stream without rows, empties the file. A stream that the service
// rejects leaves it unchanged. Bytes of others in a shared descriptor stay.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/base/descriptor.h"

namespace hilbert_ring::cli {

// Limits of the wait for a pipe's reader.
struct ReaderWait {
  std::function<bool()> stopped;              // checked every 50 ms
  absl::Time until = absl::InfiniteFuture();  // by client::SteadyNow
};

class RawOutput {
 public:
  // CANCELLED, DEADLINE_EXCEEDED: the pipe had no reader until the wait's end. INVALID_ARGUMENT:
  // the name ends in .npy. Other codes follow errno.
  static absl::StatusOr<RawOutput> Open(const std::string& path, const ReaderWait& wait);

  absl::Status Append(std::span<const std::byte> bytes);

  // Call it after the last row. A file's rows are then on the disk.
  absl::Status End();

 private:
  RawOutput(std::string path, Descriptor fd, bool in_place)
      : path_(std::move(path)), fd_(std::move(fd)), begun_(in_place) {}

  absl::Status Begin();

  std::string path_;
  Descriptor fd_;
  bool begun_;  // the file was emptied, or its bytes must stay
};

}  // namespace hilbert_ring::cli
