// A file that is read in pieces and detects changes since it was opened.
//
//   ASSIGN_OR_RETURN(const ReadableFile file, ReadableFile::Open("model.safetensors"));
//   RETURN_IF_ERROR(file.Read(8, bytes));
//   RETURN_IF_ERROR(file.CheckUnchanged());     // before using the bytes
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hilbert_ring {

// Identifies a file's version. Two changes within a step of the file system's clock, some
// milliseconds, look alike.
struct FileStamp {
  dev_t device = 0;
  ino_t inode = 0;
  int64_t bytes = 0;
  int64_t modified_ns = 0;  // of the contents, since the epoch
  int64_t changed_ns = 0;   // of contents or attributes
  auto operator<=>(const FileStamp&) const = default;
};

// Closes the file with the object. Reads the opened file even if its name is replaced. Thread-safe.
class ReadableFile {
 public:
  // Messages name the path; codes follow errno. INVALID_ARGUMENT: not a regular file.
  static absl::StatusOr<ReadableFile> Open(const std::string& path);

  // Opens `name` in an open folder, which messages call `folder`.
  static absl::StatusOr<ReadableFile> OpenAt(int folder_fd, const std::string& folder,
                                             const std::string& name);

  ReadableFile(ReadableFile&& other) noexcept;
  ReadableFile& operator=(ReadableFile&& other) noexcept;
  ~ReadableFile();

  const std::string& path() const { return path_; }
  int64_t bytes() const { return stamp_.bytes; }
  const FileStamp& stamp() const { return stamp_; }  // when it was opened

  // Fills `to` from byte `offset` on. UNAVAILABLE: the file was shortened; else codes follow errno.
  absl::Status Read(int64_t offset, std::span<std::byte> to) const;

  // The stamp at this moment. Codes follow errno.
  absl::StatusOr<FileStamp> StampNow() const;

  // UNAVAILABLE if size or modification time differ from those at opening.
  absl::Status CheckUnchanged() const;

 private:
  ReadableFile(std::string path, int fd, const FileStamp& stamp)
      : path_(std::move(path)), fd_(fd), stamp_(stamp) {}

  std::string path_;
  int fd_ = -1;
  FileStamp stamp_;
};

}  // namespace hilbert_ring
