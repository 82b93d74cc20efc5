// Reads whole text files.
//
//   auto text = ReadText(path, {.bytes = 1 << 20, .words = "the limit of a job spec"});
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace hilbert_ring::client {

struct TextLimit {
  size_t bytes = 0;   // because a file may have no end
  std::string words;  // in messages: "the limit of a job spec"
};

// Reads a file, or stdin if the path is "-". OUT_OF_RANGE: the text is over the limit.
// INVALID_ARGUMENT: the path has a NUL. Other codes follow errno.
absl::StatusOr<std::string> ReadText(const std::string& path, const TextLimit& limit);

// Returns the name in messages: the path, or "stdin".
std::string TextName(const std::string& path);

}  // namespace hilbert_ring::client
