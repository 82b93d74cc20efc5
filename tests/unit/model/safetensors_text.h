// Builds files of weights for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/model/files/safetensors.h"

namespace hilbert_ring::testing {

// A file with this header and `data_bytes` bytes of data, each 0x3f.
inline std::string SafetensorsText(std::string_view header, int64_t data_bytes) {
  std::string file(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, sizeof(length));
  return file.append(header).append(static_cast<size_t>(data_bytes), '\x3f');
}

inline absl::StatusOr<std::vector<SafetensorsEntry>> ParseText(const std::string& file) {
  return ParseSafetensors(std::as_bytes(std::span(file.data(), file.size())),
                          static_cast<int64_t>(file.size()));
}

}  // namespace hilbert_ring::testing
