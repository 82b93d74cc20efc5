// Files for a test in a folder that is removed at the end.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "wire/npy_header.h"

namespace hilbert_ring::client {

class TestFiles {
 public:
  TestFiles();
  ~TestFiles();
  TestFiles(const TestFiles&) = delete;
  TestFiles& operator=(const TestFiles&) = delete;

  std::string Path(std::string_view name) const { return folder_ / name; }
  std::vector<std::string> Names() const;  // existing files, sorted

  std::string Write(std::string_view name, std::string_view bytes) const;  // returns the path

  std::string WriteFortranNpy(std::string_view name, wire::NpyType type,
                              const std::vector<int64_t>& shape) const {
    int64_t bytes = wire::NpyItemBytes(type);
    for (const int64_t axis : shape) bytes *= axis;
    return WriteFortranNpy(name, type, shape, std::vector<char>(static_cast<size_t>(bytes)));
  }

  // values: in the file's order.
  template <typename T>
  std::string WriteFortranNpy(std::string_view name, wire::NpyType type,
                              const std::vector<int64_t>& shape,
                              const std::vector<T>& values) const {
    std::string header = wire::FormatNpyHeader(type, shape);
    header.replace(header.find("False"), 5, "True ");
    header.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    return Write(name, header);
  }

  template <typename T>
  std::string WriteNpy(std::string_view name, wire::NpyType type, const std::vector<int64_t>& shape,
                       const std::vector<T>& values) const {
    std::string bytes = wire::FormatNpyHeader(type, shape);
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    return Write(name, bytes);
  }

 private:
  std::filesystem::path folder_;
};

std::string ReadFile(const std::string& path);

// "GOLDEN/case/file".
std::string GoldenPath(const std::string& golden_case, const std::string& file);

}  // namespace hilbert_ring::client
