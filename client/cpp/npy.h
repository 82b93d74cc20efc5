// .npy files as memory: read without loading them, written at full size before the first byte.
//
//   auto q = NpyFile::Open("q.npy");                       // checks header and size, maps the file
//   q->data();                                             // q->bytes() of them
//   q->Release(0, 1 << 20);                                // done with the first MiB
//
//   auto out = NpyWriter::Create("out.npy", NpyType::kFloat32, shape);
//   std::memcpy(out->data().data(), ...);
//   out->Commit();                                         // or the file is removed
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/npy_header.h"
#include "client/cpp/pending_file.h"

namespace hilbert_ring::client {

// A file's bytes in the address space. Unmapped with the object.
class FileMapping {
 public:
  FileMapping() = default;
  FileMapping(std::byte* begin, int64_t bytes) : begin_(begin), bytes_(bytes) {}
  FileMapping(FileMapping&& other) noexcept;
  FileMapping& operator=(FileMapping&& other) noexcept;
  ~FileMapping();
  std::byte* begin() const { return begin_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* begin_ = nullptr;
  int64_t bytes_ = 0;
};

// An array on disk, mapped read-only. Immutable; any number of threads may read it. The file must
// keep its size while it is open.
class NpyFile {
 public:
  // The message names the path. NOT_FOUND, PERMISSION_DENIED: as the system says. INVALID_ARGUMENT:
  // not a file, a header that ParseNpyHeader refuses, more or fewer bytes than the header
  // announces.
  static absl::StatusOr<NpyFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  NpyType type() const { return header_.type; }
  const std::vector<int64_t>& shape() const { return header_.shape; }
  bool fortran_order() const { return header_.fortran_order; }
  const std::byte* data() const { return mapping_.begin() + header_.data_offset; }
  int64_t bytes() const { return header_.data_bytes; }
  std::span<const std::byte> span() const { return {data(), static_cast<size_t>(bytes())}; }

  // Gives the memory of bytes [begin, end) of the data and of their surroundings back; they are
  // read from disk when used again.
  void Release(int64_t begin, int64_t end) const;

 private:
  NpyFile(std::string path, NpyHeader header, FileMapping mapping)
      : path_(std::move(path)), header_(std::move(header)), mapping_(std::move(mapping)) {}

  std::string path_;
  NpyHeader header_;
  FileMapping mapping_;
};

// A new array on disk, mapped for writing. Its space is taken on creation, so that a full disk is
// known before a job starts.
class NpyWriter {
 public:
  // The message names the path and, where the disk is full or the file too large for it
  // (RESOURCE_EXHAUSTED, OUT_OF_RANGE), the bytes asked for. As PendingFile::Create otherwise.
  static absl::StatusOr<NpyWriter> Create(const std::string& path, NpyType type,
                                          std::span<const int64_t> shape);

  const std::string& path() const { return file_.path(); }
  std::span<std::byte> data() const;  // row-major; zero at first

  // As of PendingFile.
  absl::Status Sync() { return file_.Sync(); }

  // Gives the file its name. Call once; data() is gone afterwards. Errors of PendingFile::Commit.
  absl::Status Commit();

 private:
  NpyWriter(PendingFile file, FileMapping mapping, int64_t data_offset)
      : file_(std::move(file)), mapping_(std::move(mapping)), data_offset_(data_offset) {}

  PendingFile file_;
  FileMapping mapping_;
  int64_t data_offset_;
};

}  // namespace hilbert_ring::client
