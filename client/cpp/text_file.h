// A file of text, whole.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace hilbert_ring::client {

struct TextLimit {
  size_t bytes = 0;   // a file that never ends is refused too
  std::string words;  // what a message says of it: "the limit of a job spec"
};

// "-": what the process reads from, "stdin" in messages, as TextName says. OUT_OF_RANGE beyond the
// limit; errors of the system.
absl::StatusOr<std::string> ReadText(const std::string& path, const TextLimit& limit);

std::string TextName(const std::string& path);

}  // namespace hilbert_ring::client
