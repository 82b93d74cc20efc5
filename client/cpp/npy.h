// .npy files as memory: read by mapping, written at full size before the first byte.
//
//   auto q = NpyFile::Open("q.npy");                       // checks header and size, maps the file
//   q->data();                                             // q->bytes() of them
//   q->Release(0, 1 << 20);                                // done with the first MiB
//
//   auto out = NpyWriter::Create("out.npy", NpyType::kFloat32, shape);
//   std::memcpy(out->data().data(), ...);
//   out->Commit();                                         // otherwise the file is removed
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/file_mapping.h"
#include "client/cpp/pending_file.h"
#include "wire/npy_header.h"

namespace hilbert_ring::client {

// An array on disk, mapped read-only. Immutable; any number of threads may read it. The file must
// keep its size while it is open.
class NpyFile {
 public:
  // Messages have the path; codes are the system's. INVALID_ARGUMENT: not a file, a header that
  // ParseNpyHeader rejects, or a size other than the header's.
  static absl::StatusOr<NpyFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  wire::NpyType type() const { return header_.type; }
  const std::vector<int64_t>& shape() const { return header_.shape; }
  bool fortran_order() const { return header_.fortran_order; }
  const std::byte* data() const { return mapping_->begin() + header_.data_offset; }
  int64_t bytes() const { return header_.data_bytes; }
  std::span<const std::byte> span() const { return {data(), static_cast<size_t>(bytes())}; }

  // DATA_LOSS, with the path: the file was shortened or unreadable. Needs CatchLostBytes.
  absl::Status CheckIntact() const;

  // Frees the memory of bytes [begin, end) of the data and around them. Later use reads them from
  // disk again.
  void Release(int64_t begin, int64_t end) const;

 private:
  NpyFile(std::string path, wire::NpyHeader header, std::unique_ptr<FileMapping> mapping)
      : path_(std::move(path)), header_(std::move(header)), mapping_(std::move(mapping)) {}

  std::string path_;
  wire::NpyHeader header_;
  std::unique_ptr<FileMapping> mapping_;
};

// INVALID_ARGUMENT: the output is stdout, a pipe or a device, which cannot be mapped.
absl::Status CheckNpyPlace(const std::string& path);

// A new array on disk, mapped for writing. Creation allocates its space, so a full disk shows
// early.
class NpyWriter {
 public:
  // Messages have the path. RESOURCE_EXHAUSTED (the disk is full) and OUT_OF_RANGE (the file is too
  // large for it) also have the bytes. Other errors as CheckNpyPlace and PendingFile::Create.
  static absl::StatusOr<NpyWriter> Create(const std::string& path, wire::NpyType type,
                                          std::span<const int64_t> shape);

  const std::string& path() const { return file_.path(); }
  std::span<std::byte> data() const;  // row-major; zero at first

  // DATA_LOSS, with the path: written bytes are lost. Needs CatchLostBytes.
  absl::Status CheckIntact() const;

  absl::Status Sync();

  // Gives the file its name once; data() is then invalid. Errors of CheckIntact and PendingFile.
  absl::Status Commit();

 private:
  NpyWriter(PendingFile file, std::unique_ptr<FileMapping> mapping, int64_t data_offset)
      : file_(std::move(file)), mapping_(std::move(mapping)), data_offset_(data_offset) {}

  PendingFile file_;
  std::unique_ptr<FileMapping> mapping_;
  int64_t data_offset_;
};

}  // namespace hilbert_ring::client
