// Rows of Q, K and V as they come from pipes and growing files: raw numbers, a row after the other.
//
//   auto rows = RawRows::Open({.q = "q.pipe", .k = "k.pipe", .v = "v.pipe"}, spec, stopped);
//   calls.next = [&](const std::stop_token& over) { return rows->Next(over); };
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/attend_stream.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring::cli {

struct RawPaths {
  std::string q, k, v;  // or
  std::string qkv;      // of each token its rows of q, k and v, one after the other. "-": stdin
  bool follow = false;  // the end of a regular file is not that of the stream: it grows
};

class RawRows {
 public:
  // Opens all of them without waiting for whoever writes to a pipe. stopped: asked some ten times a
  // second; from then on nothing more is read, and the stream ends. Errors name the path.
  static absl::StatusOr<RawRows> Open(const RawPaths& paths, const JobSpec& spec,
                                      std::function<bool()> stopped);
  RawRows(RawRows&& other) noexcept = default;
  RawRows& operator=(RawRows&&) = delete;
  ~RawRows();

  // Whole rows, as many as are there and at least one, which are waited for. Nothing at the end.
  // INVALID_ARGUMENT: a file ends within a row, or has fewer or more rows than another.
  // DATA_LOSS: a file has become shorter than it was seen to be, or is read to its end while it is
  // followed and its path has another file.
  absl::StatusOr<std::optional<client::StreamBlock>> Next(const std::stop_token& over);

 private:
  struct Input {
    std::string path;
    int fd = -1;
    int64_t row_bytes = 0;
    std::vector<std::byte> bytes;  // read, the first `there` of them
    size_t there = 0;
    bool ended = false;
    int64_t most_bytes = -1;  // of a regular file, the most that were seen; -1: it is none
  };
  RawRows(bool follow, std::function<bool()> stopped)
      : follow_(follow), stopped_(std::move(stopped)) {}

  // Until so many bytes are there; what comes of the others meanwhile is read, as far as there is
  // room. False where the file ends before, or it is over.
  absl::StatusOr<bool> Fill(Input& input, size_t bytes, const std::stop_token& over);
  absl::Status ReadSome();
  absl::StatusOr<bool> ReadFrom(Input& input) const;
  static absl::Status CheckSize(Input& input);
  static absl::Status CheckPlace(const Input& input);
  absl::Status CheckEnd(const std::stop_token& over);
  client::StreamBlock Block(int64_t rows);

  bool follow_;
  std::function<bool()> stopped_;
  std::vector<Input> inputs_;                          // q, k and v, or one of all three
  std::array<int64_t, 3> row_bytes_{};                 // of q, k and v
  std::array<std::vector<std::byte>, 3> taken_apart_;  // rows of one input
  int64_t rows_ = 0;                                   // of the block that was given last
};

}  // namespace hilbert_ring::cli
