#include "client/cli/raw_rows.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/text_file.h"
#include "engine/base/return_if_error.h"
#include "wire/codec.h"

namespace hilbert_ring::cli {
namespace {

constexpr int64_t kBlockBytes = 1 << 20;
constexpr std::chrono::milliseconds kPoll{100};

absl::Status At(const std::string& path, const std::string& message) {
  return absl::InvalidArgumentError(absl::StrCat(client::TextName(path), ": ", message));
}

}  // namespace

absl::StatusOr<RawRows> RawRows::Open(const RawPaths& paths, const JobSpec& spec,
                                      std::function<bool()> stopped) {
  RawRows rows(paths.follow, std::move(stopped));
  rows.row_bytes_ = {wire::TensorRowBytes(spec, v1::TENSOR_Q),
                     wire::TensorRowBytes(spec, v1::TENSOR_K),
                     wire::TensorRowBytes(spec, v1::TENSOR_V)};
  const auto& [q, k, v] = rows.row_bytes_;
  std::vector<std::pair<std::string, int64_t>> inputs = {{paths.q, q}, {paths.k, k}, {paths.v, v}};
  if (!paths.qkv.empty()) inputs = {{paths.qkv, q + k + v}};
  const int64_t block_rows = std::max<int64_t>(1, kBlockBytes / std::max({q, k, v}));
  for (const auto& [path, row_bytes] : inputs) {
    if (absl::EndsWith(path, ".npy")) {
      return At(path, "--stream takes raw rows; .npy files are for attend without it");
    }
    Input input{.path = path, .row_bytes = row_bytes};
    // A pipe without a writer opens at once, and has no bytes yet.
    input.fd = Descriptor(path == "-" ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                      : open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (input.fd.number() < 0)
      return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot open"));
    struct stat file = {};
    if (fstat(input.fd.number(), &file) == 0 && S_ISREG(file.st_mode))
      input.most_bytes = file.st_size;
    input.bytes.resize(block_rows * row_bytes);
    rows.inputs_.push_back(std::move(input));
  }
  return rows;
}

// Reads all inputs that have room: a program that writes them alternately must not block on one
// while this one waits for another.
absl::Status RawRows::ReadSome() {
  std::vector<pollfd> ready;
  for (const Input& input : inputs_) {
    const bool takes = !input.ended && input.there < input.bytes.size();
    ready.push_back({.fd = takes ? input.fd.number() : -1, .events = POLLIN, .revents = 0});
  }
  if (poll(ready.data(), ready.size(), static_cast<int>(kPoll.count())) <= 0) {
    return absl::OkStatus();
  }
  bool came = false;
  for (size_t i = 0; i < ready.size(); ++i) {
    if (ready[i].revents == 0) continue;
    ASSIGN_OR_RETURN(const bool some, ReadFrom(inputs_[i]));
    came = came || some;
  }
  if (!came && follow_) std::this_thread::sleep_for(kPoll);  // until a file grows
  return absl::OkStatus();
}

// A file that was emptied and rewritten would continue with the wrong rows, or with missing ones.
absl::Status RawRows::CheckSize(Input& input) {
  if (input.most_bytes < 0) return absl::OkStatus();
  struct stat file = {};
  if (fstat(input.fd.number(), &file) != 0) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat(client::TextName(input.path), ": cannot read its size"));
  }
  if (file.st_size < input.most_bytes) {
    return absl::DataLossError(absl::StrCat(client::TextName(input.path), " was shortened, from ",
                                            input.most_bytes, " to ", file.st_size, " bytes"));
  }
  input.most_bytes = file.st_size;
  return absl::OkStatus();
}

// A removed file may still grow through its writer's descriptor.
absl::Status RawRows::CheckPlace(const Input& input) {
  if (input.path == "-") return absl::OkStatus();
  struct stat opened = {}, there = {};
  if (fstat(input.fd.number(), &opened) != 0 || stat(input.path.c_str(), &there) != 0 ||
      (opened.st_dev == there.st_dev && opened.st_ino == there.st_ino)) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat(input.path, " was replaced by another file, which is not read"));
}

absl::StatusOr<bool> RawRows::ReadFrom(Input& input) const {
  RETURN_IF_ERROR(CheckSize(input));
  const ssize_t bytes =
      read(input.fd.number(), input.bytes.data() + input.there, input.bytes.size() - input.there);
  if (bytes > 0) {
    RETURN_IF_ERROR(CheckSize(input));  // the bytes belong to a file of the remembered size
    input.there += static_cast<size_t>(bytes);
    return true;
  }
  if (bytes < 0 && (errno == EINTR || errno == EAGAIN)) return false;
  if (bytes < 0)
    return absl::ErrnoToStatus(errno, absl::StrCat(client::TextName(input.path), ": read"));
  if (follow_ && input.most_bytes >= 0) {
    RETURN_IF_ERROR(CheckPlace(input));
  } else {
    input.ended = true;
  }
  return false;
}

absl::StatusOr<bool> RawRows::Fill(Input& input, size_t bytes, const std::stop_token& over) {
  while (input.there < bytes) {
    if (over.stop_requested() || stopped_() || input.ended) return false;
    RETURN_IF_ERROR(ReadSome());
  }
  return true;
}

absl::StatusOr<std::optional<client::StreamBlock>> RawRows::Next(const std::stop_token& over) {
  for (Input& input : inputs_) {
    const size_t used = rows_ * input.row_bytes;
    input.there -= used;
    std::memmove(input.bytes.data(), input.bytes.data() + used, input.there);
  }
  rows_ = 0;
  Input& first = inputs_.front();
  RETURN_IF_ERROR(Fill(first, first.row_bytes, over).status());
  auto rows = static_cast<int64_t>(first.there) / first.row_bytes;
  for (Input& input : inputs_) {
    RETURN_IF_ERROR(Fill(input, rows * input.row_bytes, over).status());
    rows = std::min(rows, static_cast<int64_t>(input.there) / input.row_bytes);
  }
  if (rows > 0) return Block(rows);
  RETURN_IF_ERROR(CheckEnd(over));
  return std::nullopt;
}

// All inputs must end after the same row, unless they were not read to their end.
absl::Status RawRows::CheckEnd(const std::stop_token& over) {
  for (Input& input : inputs_) {
    RETURN_IF_ERROR(Fill(input, 1, over).status());
    if (over.stop_requested() || stopped_() || input.there == 0) continue;
    if (static_cast<int64_t>(input.there) < input.row_bytes) {
      return At(input.path, absl::StrCat("ends ", input.there,
                                         " bytes behind a row, each of which "
                                         "has ",
                                         input.row_bytes));
    }
    return At(input.path, "has more rows than another input");
  }
  return absl::OkStatus();
}

client::StreamBlock RawRows::Block(int64_t rows) {
  rows_ = rows;
  std::array<std::span<const std::byte>, 3> tensors;
  if (inputs_.size() == tensors.size()) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensors[i] = {inputs_[i].bytes.data(), static_cast<size_t>(rows * row_bytes_[i])};
    }
  } else {
    const std::byte* from = inputs_.front().bytes.data();
    for (size_t i = 0; i < tensors.size(); ++i) {
      taken_apart_[i].resize(rows * row_bytes_[i]);
      tensors[i] = taken_apart_[i];
    }
    for (int64_t row = 0; row < rows; ++row) {
      for (size_t i = 0; i < tensors.size(); ++i) {
        std::memcpy(taken_apart_[i].data() + row * row_bytes_[i], from, row_bytes_[i]);
        from += row_bytes_[i];
      }
    }
  }
  return {.rows = rows, .q = tensors[0], .k = tensors[1], .v = tensors[2]};
}

}  // namespace hilbert_ring::cli
