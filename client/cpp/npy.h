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
#include "client/cpp/file_mapping.h"
#include "client/cpp/pending_file.h"
#include "wire/npy_header.h"

namespace hilbert_ring::client {

// An array on disk, mapped read-only. Immutable; any number of threads may read it. The file must
// keep its size while it is open.
class NpyFile {
 public:
  // The message names the path. NOT_FOUND, PERMISSION_DENIED: as the system says. INVALID_ARGUMENT:
  // not a file, a header that ParseNpyHeader refuses, more or fewer bytes than the header
  // announces.
  static absl::StatusOr<NpyFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  wire::NpyType type() const { return header_.type; }
  const std::vector<int64_t>& shape() const { return header_.shape; }
  bool fortran_order() const { return header_.fortran_order; }
  const std::byte* data() const { return mapping_.begin() + header_.data_offset; }
  int64_t bytes() const { return header_.data_bytes; }
  std::span<const std::byte> span() const { return {data(), static_cast<size_t>(bytes())}; }

  // DATA_LOSS, naming the path, when the file was shortened, or could not be read, while it was
  // open: what was read then is not to be trusted. With CatchLostBytes.
  absl::Status CheckIntact() const;

  // Gives the memory of bytes [begin, end) of the data and of their surroundings back; they are
  // read from disk when used again.
  void Release(int64_t begin, int64_t end) const;

 private:
  NpyFile(std::string path, wire::NpyHeader header, FileMapping mapping)
      : path_(std::move(path)), header_(std::move(header)), mapping_(std::move(mapping)) {}

  std::string path_;
  wire::NpyHeader header_;
  FileMapping mapping_;
};

// INVALID_ARGUMENT: an output that is stdout, a pipe or a device, which cannot be mapped.
absl::Status CheckNpyPlace(const std::string& path);

// A new array on disk, mapped for writing. Its space is taken on creation, so that a full disk is
// known before a job starts.
class NpyWriter {
 public:
  // The message names the path and, where the disk is full or the file too large for it
  // (RESOURCE_EXHAUSTED, OUT_OF_RANGE), the bytes asked for. As CheckNpyPlace and
  // PendingFile::Create otherwise.
  static absl::StatusOr<NpyWriter> Create(const std::string& path, wire::NpyType type,
                                          std::span<const int64_t> shape);

  const std::string& path() const { return file_.path(); }
  std::span<std::byte> data() const;  // row-major; zero at first

  // DATA_LOSS, naming the path, when bytes that were written are lost: the file was shortened, or
  // its disk had no room after all. With CatchLostBytes.
  absl::Status CheckIntact() const;

  // Errors of CheckIntact and of PendingFile::Sync.
  absl::Status Sync();

  // Gives the file its name. Call once; data() is gone afterwards. Errors of CheckIntact
  // and of PendingFile::Commit.
  absl::Status Commit();

 private:
  NpyWriter(PendingFile file, FileMapping mapping, int64_t data_offset)
      : file_(std::move(file)), mapping_(std::move(mapping)), data_offset_(data_offset) {}

  PendingFile file_;
  FileMapping mapping_;
  int64_t data_offset_;
};

}  // namespace hilbert_ring::client
