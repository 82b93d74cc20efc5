// Reads rows of Q, K and V from pipes and growing files: raw numbers, row after row.
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
#include "engine/base/descriptor.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring::cli {

struct RawPaths {
  std::string q, k, v;
  std::string qkv;      // rows of q, k and v of each token, interleaved. "-": stdin
  bool follow = false;  // regular files grow, and their end is not the stream's
};

class RawRows {
 public:
  // Opens all paths without waiting for writers of pipes. stopped: called about ten times a second;
  // once it is true, reading stops and the stream ends. Errors have the path.
  static absl::StatusOr<RawRows> Open(const RawPaths& paths, const JobSpec& spec,
                                      std::function<bool()> stopped);

  // Waits for at least one whole row and returns all that have come; nothing: the end.
  // INVALID_ARGUMENT: a file ends within a row, or has fewer or more rows than another. DATA_LOSS:
  // a file was shortened, or a followed file was read to its end and its path now has another file.
  absl::StatusOr<std::optional<client::StreamBlock>> Next(const std::stop_token& over);

 private:
  struct Input {
    std::string path;
    Descriptor fd;
    int64_t row_bytes = 0;
    std::vector<std::byte> bytes;  // the first `there` of them were read
    size_t there = 0;
    bool ended = false;
    int64_t most_bytes = -1;  // largest size seen of a regular file; -1: not a regular file
  };
  RawRows(bool follow, std::function<bool()> stopped)
      : follow_(follow), stopped_(std::move(stopped)) {}

  // Waits for the bytes, and also reads other inputs that have room. Returns false if the input
  // ends before, or the stream is over.
  absl::StatusOr<bool> Fill(Input& input, size_t bytes, const std::stop_token& over);
  absl::Status ReadSome();
  absl::StatusOr<bool> ReadFrom(Input& input) const;
  static absl::Status CheckSize(Input& input);
  static absl::Status CheckPlace(const Input& input);
  absl::Status CheckEnd(const std::stop_token& over);
  client::StreamBlock Block(int64_t rows);

  bool follow_;
  std::function<bool()> stopped_;
  std::vector<Input> inputs_;  // q, k and v, or one with all three
  std::array<int64_t, 3> row_bytes_{};
  std::array<std::vector<std::byte>, 3> taken_apart_;  // tensors split from one input
  int64_t rows_ = 0;
};

}  // namespace hilbert_ring::cli
