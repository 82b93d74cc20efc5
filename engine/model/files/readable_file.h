// A file that is read piece by piece, and that knows whether it has changed since it was opened.
//
//   ASSIGN_OR_RETURN(const ReadableFile file, ReadableFile::Open("model.safetensors"));
//   RETURN_IF_ERROR(file.Read(8, bytes));
//   RETURN_IF_ERROR(file.CheckUnchanged());     // before what was read is trusted
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hilbert_ring {

// What tells a file and its version from others, as far as the file system says. Times are of the
// file system's clock, whose step is some milliseconds: two changes within one look alike.
struct FileStamp {
  dev_t device = 0;
  ino_t inode = 0;
  int64_t bytes = 0;
  int64_t modified_ns = 0;  // of the contents, since the epoch
  int64_t changed_ns = 0;   // of contents or attributes
  auto operator<=>(const FileStamp&) const = default;
};

// Closed with the object. A file that is replaced by another of its name stays as it was. Any
// number of threads may read it.
class ReadableFile {
 public:
  // The message names the path; the code follows errno. INVALID_ARGUMENT: not a regular file.
  static absl::StatusOr<ReadableFile> Open(const std::string& path);

  // `name` of an open folder, which messages call `folder`.
  static absl::StatusOr<ReadableFile> OpenAt(int folder_fd, const std::string& folder,
                                             const std::string& name);

  ReadableFile(ReadableFile&& other) noexcept;
  ReadableFile& operator=(ReadableFile&& other) noexcept;
  ~ReadableFile();

  const std::string& path() const { return path_; }
  int64_t bytes() const { return stamp_.bytes; }
  const FileStamp& stamp() const { return stamp_; }  // when it was opened

  // Fills `to` from byte `offset` on. UNAVAILABLE: the file ends before, so that it has been
  // shortened; else the code follows errno.
  absl::Status Read(int64_t offset, std::span<std::byte> to) const;

  // As it is now. The code of an error follows errno.
  absl::StatusOr<FileStamp> StampNow() const;

  // UNAVAILABLE: its contents have been changed since it was opened, as its size and the time of
  // its last change say.
  absl::Status CheckUnchanged() const;

 private:
  ReadableFile(std::string path, int fd, const FileStamp& stamp)
      : path_(std::move(path)), fd_(fd), stamp_(stamp) {}

  std::string path_;
  int fd_ = -1;
  FileStamp stamp_;
};

}  // namespace hilbert_ring
