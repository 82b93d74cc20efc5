#include "tests/golden/npy_values.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::testing {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

template <typename T>
absl::StatusOr<std::vector<T>> ReadNpy(const std::string& path, const std::string& descr) {
  const std::string file = ReadFile(path);
  if (file.size() < 10 || file.compare(1, 5, "NUMPY") != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no .npy file"));
  }
  const size_t header = static_cast<uint8_t>(file[8]) + 256 * static_cast<uint8_t>(file[9]);
  if (file.substr(10, header).find(descr) == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not of type ", descr));
  }
  std::vector<T> values((file.size() - 10 - header) / sizeof(T));
  std::memcpy(values.data(), file.data() + 10 + header, values.size() * sizeof(T));
  return values;
}

template absl::StatusOr<std::vector<float>> ReadNpy(const std::string&, const std::string&);
template absl::StatusOr<std::vector<int32_t>> ReadNpy(const std::string&, const std::string&);

}  // namespace hilbert_ring::testing
