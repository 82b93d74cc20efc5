// A file that appears under its name only when it is complete.
//
//   auto file = PendingFile::Create("out.npy");   // opens out.npy.partial
//   write(file->fd(), ...);
//   file->Commit();                               // now it is out.npy
//
// A file that is not committed is removed. The lock on out.npy.partial tells that somebody writes
// it: what a killed client left is replaced. A symbolic link stays, and its target is written so.
// A file that is replaced leaves its permissions to the new one, which its owner alone may read
// until then.
// What is no regular file (a pipe, a device, stdout as "-" or /dev/stdout) is written in place.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/output_place.h"

namespace hilbert_ring::client {

// "PATH.partial": where a file is until it is committed; PATH is no symbolic link. A name too long
// for that gives a checksum of it, with the same ending.
std::string PartialPath(const std::string& path);

class PendingFile {
 public:
  // The file's name says why, and the code follows errno: the folder is missing or not writable.
  // INVALID_ARGUMENT: the path is empty, a folder, a socket or a disk, or the partial one is
  // something other than a file. FAILED_PRECONDITION: nobody reads the pipe.
  // ALREADY_EXISTS: somebody is writing the same path now.
  static absl::StatusOr<PendingFile> Create(const std::string& path);

  PendingFile(PendingFile&& other) noexcept;
  PendingFile& operator=(PendingFile&& other) noexcept;
  ~PendingFile();

  const std::string& path() const { return place_.path; }  // the final one
  bool in_place() const { return place_.in_place; }        // it has no partial one
  int fd() const { return fd_; }  // read and write, in place only to write; owned here

  // Writes bytes at the end.
  absl::Status Append(std::string_view bytes);

  // Returns when the bytes are on disk, those written through a mapping too. The code follows
  // errno (RESOURCE_EXHAUSTED: the disk is full).
  absl::Status Sync();

  // Gives the file its name, replacing what was there, once its bytes are on disk. Call once; what
  // was there stays when that fails. ABORTED: somebody else removed or replaced the partial file.
  absl::Status Commit();

 private:
  PendingFile(OutputPlace place, int fd) : place_(std::move(place)), fd_(fd) {}
  std::string WrittenPath() const;
  void Discard();

  OutputPlace place_;
  int fd_ = -1;  // -1: moved from or committed
};

}  // namespace hilbert_ring::client
