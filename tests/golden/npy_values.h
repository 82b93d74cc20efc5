// The numbers of a golden case's .npy file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hilbert_ring::testing {

// The whole file; empty where there is none.
std::string ReadFile(const std::string& path);

// The files of golden cases alone: version 1.0, C order, little-endian, of the type that `descr`
// names. Users' files have a stricter reader in the client. T: float or int32_t.
template <typename T>
absl::StatusOr<std::vector<T>> ReadNpy(const std::string& path, const std::string& descr);

}  // namespace hilbert_ring::testing
