// Results of a stream as raw rows, which are in the file as soon as they come.
//
//   ASSIGN_OR_RETURN(RawOutput out, RawOutput::Open("out.raw", {.stopped = Interrupted}));
//   out.Append(rows);
//   out.End();
//
// What a file held before is gone with the first of them, or the end of a stream without any: not
// where the service takes no stream. What others wrote to a descriptor stays.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace hilbert_ring::cli {

// How long a pipe that nobody reads is waited for.
struct ReaderWait {
  std::function<bool()> stopped;              // looked at every 50 ms
  absl::Time until = absl::InfiniteFuture();  // by client::SteadyNow
};

class RawOutput {
 public:
  // CANCELLED, DEADLINE_EXCEEDED: nobody read the pipe until the wait's end. INVALID_ARGUMENT: the
  // name is that of a .npy. Else the code follows errno.
  static absl::StatusOr<RawOutput> Open(const std::string& path, const ReaderWait& wait);

  RawOutput(RawOutput&& other) noexcept
      : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), begun_(other.begun_) {}
  RawOutput& operator=(RawOutput&&) = delete;
  ~RawOutput();

  absl::Status Append(std::span<const std::byte> bytes);

  // No row follows; of a file: they are on the disk.
  absl::Status End();

 private:
  RawOutput(std::string path, int fd, bool in_place)
      : path_(std::move(path)), fd_(fd), begun_(in_place) {}

  absl::Status Begin();

  std::string path_;
  int fd_ = -1;  // -1: moved from
  bool begun_;   // what the file held before is gone, or is to stay
};

}  // namespace hilbert_ring::cli
