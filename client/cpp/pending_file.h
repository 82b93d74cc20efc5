// A file that appears under its name only when it is complete.
//
//   auto file = PendingFile::Create("out.npy");   // opens out.npy.partial
//   write(file->fd(), ...);
//   file->Commit();                               // now it is out.npy
//
// A file that is not committed is removed. A writer locks out.npy.partial; a partial file without a
// lock, left by a killed client, is replaced. A symbolic link stays, and its target is replaced in
// this way. The new file has the permissions of the replaced one; until the commit only its owner
// may read it. Anything but a regular file (a pipe, a device, stdout as "-" or /dev/stdout) is
// written in place.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/descriptor.h"

namespace hilbert_ring::client {

// Finds the place of an output by its path. A symbolic link stays, and its target is written even
// if missing. Pipes, devices and descriptors of this process are written in place, and never
// replaced.
//
//   auto place = FindOutput("latest.npy");   // a link to runs/7.npy
//   place->path;                             // "runs/7.npy"
//   FindOutput("/dev/stdout")->descriptor;   // 1
struct OutputPlace {
  std::string path;  // without symbolic links; unchanged with a descriptor
  int descriptor =
      -1;  // a descriptor of this process ("-" or a link such as /dev/stdout); -1: no descriptor
  bool in_place = false;  // not a regular file: a new file must not replace it
  int mode = -1;          // permissions of the replaced file; -1: no file is there
};

// Opens nothing. FAILED_PRECONDITION: a cycle of links. INVALID_ARGUMENT: too long for the system.
absl::StatusOr<OutputPlace> FindOutput(const std::string& path);

bool IsStdout(const std::string& path);

// Path until the commit: "PATH.partial", if PATH is no symbolic link. A name that would be too long
// is replaced by its checksum, with the same ending.
std::string PartialPath(const std::string& path);

class PendingFile {
 public:
  // Messages have the path, and the code follows errno: the folder is missing or not writable.
  // INVALID_ARGUMENT: the path is empty, a folder, a socket or a disk, or the partial path is not a
  // file. FAILED_PRECONDITION: the pipe has no reader. ALREADY_EXISTS: another writer has the path
  // now.
  static absl::StatusOr<PendingFile> Create(const std::string& path);

  PendingFile(PendingFile&& other) noexcept = default;
  PendingFile& operator=(PendingFile&& other) noexcept {
    std::swap(place_, other.place_);
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~PendingFile();

  const std::string& path() const { return place_.path; }
  // Owned here; opened for reading and writing, in place only for writing.
  int fd() const { return fd_.number(); }

  absl::Status Append(std::string_view bytes);

  // Returns when the bytes, also those of a mapping, are on disk. The code follows errno.
  absl::Status Sync();

  // Syncs the file and gives it its name, replacing an older file. Call it once; on failure the
  // older file stays. ABORTED: another process removed or replaced the partial file.
  absl::Status Commit();

 private:
  PendingFile(OutputPlace place, Descriptor fd) : place_(std::move(place)), fd_(std::move(fd)) {}
  std::string WrittenPath() const;

  OutputPlace place_;
  Descriptor fd_;
};

}  // namespace hilbert_ring::client
