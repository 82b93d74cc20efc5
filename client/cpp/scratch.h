// A folder for scratch files in memory (tmpfs), beneath a service's data root. A client on the
// service's host writes inputs to files there, and reads outputs from there.
//
//   ASSIGN_OR_RETURN(Scratch scratch, Scratch::Make(folder, service_user));
//   RETURN_IF_ERROR(scratch.Write("q", q));    // scratch.path("q") is for Open
//   RETURN_IF_ERROR(scratch.Read("out", out));
//
// The folder is FOLDER/hilbert-ring-scratch-USER/WORD, and its client locks it. A folder without a
// lock is of a killed client; the user's next client removes it. The Python client does the same
// (_scratch.py).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/descriptor.h"

namespace hilbert_ring::client {

// Checks that `folder` lies in memory and has room for the bytes. The machine needs memory for
// twice as many, because the workers hold them too. FAILED_PRECONDITION, RESOURCE_EXHAUSTED.
absl::Status CheckMemoryRoom(const std::string& folder, int64_t bytes);

// The object removes the folder and its content.
class Scratch {
 public:
  // Makes a folder in `folder`, the caller's in a data root. Only this user and service_user, the
  // user of the service's processes, can read and write in it. FAILED_PRECONDITION: the system does
  // not allow that.
  static absl::StatusOr<Scratch> Make(const std::string& folder, uid_t service_user);

  Scratch(Scratch&& other) noexcept = default;
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch();

  // Path of a file in it, relative to the caller's folder.
  std::string path(const std::string& name) const { return beneath_ + "/" + name; }

  // Appends to a file. RESOURCE_EXHAUSTED: the disk is full; other codes follow errno.
  absl::Status Write(const std::string& name, std::span<const std::byte> bytes) const;

  // Reads the file's first bytes. DATA_LOSS: the file is shorter.
  absl::Status Read(const std::string& name, std::span<std::byte> to) const;

 private:
  Scratch(std::string users_path, std::string beneath, Descriptor users, Descriptor folder,
          mode_t file_mode)
      : users_path_(std::move(users_path)),
        beneath_(std::move(beneath)),
        users_(std::move(users)),
        folder_(std::move(folder)),
        file_mode_(file_mode) {}

  std::string users_path_;
  std::string beneath_;  // this folder, relative to the caller's folder
  Descriptor users_;
  Descriptor folder_;  // locked
  mode_t file_mode_ = 0;
};

}  // namespace hilbert_ring::client
