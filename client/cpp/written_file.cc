#include "client/cpp/written_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/npy.h"
#include "wire/npy_header.h"

namespace hilbert_ring::client {
namespace {

std::optional<FileVersion> VersionOf(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return std::nullopt;
  return FileVersion{.device = info.st_dev,
                     .inode = info.st_ino,
                     .modified = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec};
}

// A file system of the network remembers that a name was not there: its server is asked.
void LookAgain(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  struct statx info = {};
  statx(AT_FDCWD, folder.empty() ? "." : folder.c_str(), AT_STATX_FORCE_SYNC, STATX_MTIME, &info);
}

absl::Status NotWritten(const std::string& why) {
  return absl::DataLossError(absl::StrCat(why, ", though the service says that the job is done"));
}

}  // namespace

WrittenFile NoteBefore(const std::string& path, DataType dtype, std::vector<int64_t> shape) {
  return {.path = path, .dtype = dtype, .shape = std::move(shape), .before = VersionOf(path)};
}

absl::Status CheckWritten(const WrittenFile& file) {
  LookAgain(file.path);
  const absl::StatusOr<NpyFile> there = NpyFile::Open(file.path);
  if (!there.ok()) return NotWritten(std::string(there.status().message()));
  if (VersionOf(file.path) == file.before) {
    return NotWritten(absl::StrCat(file.path, ": was not written"));
  }
  if (there->shape() != file.shape || there->fortran_order() ||
      !wire::MayHold(there->type(), file.dtype)) {
    return NotWritten(absl::StrCat(file.path, ": is ", wire::FormatShape(there->shape()), " of ",
                                   wire::NpyTypeName(there->type()), ", expected ",
                                   wire::FormatShape(file.shape)));
  }
  return absl::OkStatus();
}

}  // namespace hilbert_ring::client
