// The numbers of a golden case's .npy file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hilbert_ring::testing {

// The whole file; empty if it does not exist.
std::string ReadFile(const std::string& path);

// Reads golden cases' files: version 1.0, C order, little-endian, of type `descr`. T: float or
// int32_t.
template <typename T>
absl::StatusOr<std::vector<T>> ReadNpy(const std::string& path, const std::string& descr);

}  // namespace hilbert_ring::testing
