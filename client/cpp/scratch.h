// A folder for scratch files beneath a service's data root that lies in memory (tmpfs): inputs are
// written to files in it, and outputs are read from there, by a client on the service's host.
//
//   ASSIGN_OR_RETURN(Scratch scratch, Scratch::Make(folder, service_user));
//   RETURN_IF_ERROR(scratch.Write("q", q));    // scratch.path("q") is for Open
//   RETURN_IF_ERROR(scratch.Read("out", out));
//
// It is FOLDER/hilbert-ring-scratch-USER/WORD, and its client holds a lock of it. One that nobody
// holds is of a client that was killed: the user's next client removes it. The Python client
// does alike (_scratch.py).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hilbert_ring::client {

// OK where `folder` lies in memory and has room for so many bytes, and the machine has memory for
// twice as many: the workers have them, too. FAILED_PRECONDITION, RESOURCE_EXHAUSTED.
absl::Status CheckMemoryRoom(const std::string& folder, int64_t bytes);

// Removed with the object, with what is in it.
class Scratch {
 public:
  // In the caller's folder of a data root, such that the service, whose processes are
  // service_user's, can read and write in it, and nobody else. FAILED_PRECONDITION: that cannot be.
  static absl::StatusOr<Scratch> Make(const std::string& folder, uid_t service_user);

  Scratch(Scratch&& other) noexcept;
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch();

  // Of a file in it, beneath the caller's folder.
  std::string path(const std::string& name) const { return beneath_ + "/" + name; }

  // Makes the file, or adds to it. RESOURCE_EXHAUSTED: the disk is full; other codes follow errno.
  absl::Status Write(const std::string& name, std::span<const std::byte> bytes) const;

  // The file's first bytes. DATA_LOSS where it has not so many.
  absl::Status Read(const std::string& name, std::span<std::byte> to) const;

 private:
  Scratch(std::string users_path, std::string beneath, int users, int folder, mode_t file_mode)
      : users_path_(std::move(users_path)),
        beneath_(std::move(beneath)),
        users_(users),
        folder_(folder),
        file_mode_(file_mode) {}

  std::string users_path_;  // of the user's folder
  std::string beneath_;     // its own, from the caller's folder
  int users_ = -1;          // descriptors
  int folder_ = -1;         // locked
  mode_t file_mode_ = 0;
};

}  // namespace hilbert_ring::client
