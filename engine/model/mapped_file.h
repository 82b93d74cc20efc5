// A file's bytes in the address space, read-only.
//
//   auto file = MappedFile::Open("model.safetensors");
//   file->bytes();
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace hilbert_ring {

// Unmapped with the object. Pages are shared with every process that maps the file. Bytes may be
// read for as long as the file keeps its size; a file that is replaced by another of its name stays
// as it was.
class MappedFile {
 public:
  // The message names the path; the code follows errno. INVALID_ARGUMENT: not a regular file.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  MappedFile(std::string path, std::span<const std::byte> bytes)
      : path_(std::move(path)), bytes_(bytes) {}

  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace hilbert_ring
