// Reads whole text files.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace hilbert_ring::client {

struct TextLimit {
  size_t bytes = 0;   // bounds files without end
  std::string words;  // in messages: "the limit of a job spec"
};

// Reads a file; "-" is stdin. OUT_OF_RANGE: beyond the limit; errors of the system.
absl::StatusOr<std::string> ReadText(const std::string& path, const TextLimit& limit);

std::string TextName(const std::string& path);

}  // namespace hilbert_ring::client
