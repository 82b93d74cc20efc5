#include "client/cpp/npy.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/errors.h"
#include "engine/base/descriptor.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring::client {
namespace {

absl::Status TakeSpace(int fd, int64_t bytes) {
  struct statvfs disk;  // read before the allocation, which may take all free space
  const bool known = fstatvfs(fd, &disk) == 0;
  int error;
  do {
    error = posix_fallocate(fd, 0, bytes);
  } while (error == EINTR);
  if (error == 0) return absl::OkStatus();
  std::string message =
      absl::StrCat("cannot create the file at its full size of ", bytes, " bytes");
  if (error == ENOSPC && known) {
    absl::StrAppend(&message, " (", static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize,
                    " are free)");
  }
  return absl::ErrnoToStatus(error, message);
}

}  // namespace

absl::StatusOr<NpyFile> NpyFile::Open(const std::string& path) {
  RETURN_IF_ERROR(CheckPath(path));
  // O_NONBLOCK: open a pipe without waiting; it is rejected below.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number() < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot open"));
  struct stat info;
  if (fstat(file.number(), &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot read its size"));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a file"));
  }
  const int64_t size = info.st_size;
  if (size == 0) return AtPath(path, wire::ParseNpyHeader("").status());
  auto mapping = FileMapping::Map(file.number(), size, PROT_READ);
  if (!mapping.ok()) return AtPath(path, mapping.status());
  absl::StatusOr<wire::NpyHeader> header = wire::ParseNpyHeader(
      {reinterpret_cast<const char*>((*mapping)->begin()), static_cast<size_t>(size)});
  if (!header.ok()) return AtPath(path, header.status());
  const int64_t expected = header->data_offset + header->data_bytes;
  if (size != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, size < expected ? ": truncated" : ": too long", ": shape ",
                     wire::FormatShape(header->shape), " of ", wire::NpyTypeName(header->type),
                     " takes ", expected, " bytes with the header, the file has ", size));
  }
  madvise((*mapping)->begin(), static_cast<size_t>(size), MADV_SEQUENTIAL);
  return NpyFile(path, *std::move(header), *std::move(mapping));
}

absl::Status NpyFile::CheckIntact() const {
  if (mapping_->Intact()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(path_, ": was shortened while it was read, or its disk failed"));
}

void NpyFile::Release(int64_t begin, int64_t end) const {
  if (end <= begin) return;
  // A read also brings the surrounding 64 KiB, Linux's default. Releasing them too keeps memory
  // free if rows are read in any order; later reads use the page cache.
  constexpr uintptr_t kAround = 64 << 10;
  const auto mapping = reinterpret_cast<uintptr_t>(mapping_->begin());
  const auto data = reinterpret_cast<uintptr_t>(this->data());
  const uintptr_t first =
      std::max(mapping, (data + static_cast<uintptr_t>(begin)) / kAround * kAround);
  const uintptr_t last =
      std::min(mapping + static_cast<uintptr_t>(mapping_->bytes()),
               (data + static_cast<uintptr_t>(end) + kAround - 1) / kAround * kAround);
  madvise(mapping_->begin() + (first - mapping), last - first, MADV_DONTNEED);
}

absl::Status CheckNpyPlace(const std::string& path) {
  ASSIGN_OR_RETURN(const OutputPlace place, FindOutput(path));
  if (!place.in_place) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": cannot write: .npy takes a regular file",
                   path == "-" ? ", and not stdout (./- is a file of that name)" : ""));
}

absl::StatusOr<NpyWriter> NpyWriter::Create(const std::string& path, wire::NpyType type,
                                            std::span<const int64_t> shape) {
  const std::string header = wire::FormatNpyHeader(type, shape);
  int64_t bytes = wire::NpyItemBytes(type);
  bool overflow = false;
  for (int64_t axis : shape) overflow |= __builtin_mul_overflow(bytes, axis, &bytes);
  overflow |= __builtin_add_overflow(bytes, static_cast<int64_t>(header.size()), &bytes);
  if (overflow) {
    return absl::OutOfRangeError(
        absl::StrCat(path, ": shape ", wire::FormatShape(shape), " takes more than 2^63 bytes"));
  }
  RETURN_IF_ERROR(CheckNpyPlace(path));
  ASSIGN_OR_RETURN(PendingFile file, PendingFile::Create(path));
  if (absl::Status space = TakeSpace(file.fd(), bytes); !space.ok()) return AtPath(path, space);
  auto mapping = FileMapping::Map(file.fd(), bytes, PROT_READ | PROT_WRITE);
  if (!mapping.ok()) return AtPath(path, mapping.status());
  std::memcpy((*mapping)->begin(), header.data(), header.size());
  return NpyWriter(std::move(file), *std::move(mapping), static_cast<int64_t>(header.size()));
}

std::span<std::byte> NpyWriter::data() const {
  return {mapping_->begin() + data_offset_, static_cast<size_t>(mapping_->bytes() - data_offset_)};
}

absl::Status NpyWriter::CheckIntact() const {
  if (mapping_->Intact()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      PartialPath(path()), ": was shortened while it was written, or its disk is full or failed"));
}

absl::Status NpyWriter::Sync() {
  RETURN_IF_ERROR(CheckIntact());
  return file_.Sync();
}

absl::Status NpyWriter::Commit() {
  RETURN_IF_ERROR(CheckIntact());
  mapping_.reset();
  return file_.Commit();
}

}  // namespace hilbert_ring::client
