// Opens files that callers pass by path, only beneath a folder.
//
//   ASSIGN_OR_RETURN(const Descriptor root, OpenRoot("/srv/tensors"));
//   ASSIGN_OR_RETURN(const Descriptor file, OpenFile(root.number(), "night/q.npy", O_RDONLY));
//
// No part of a path may be "..", a symbolic link, or begin as the service's own files do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/descriptor.h"

namespace hilbert_ring::server {

inline constexpr std::string_view kOwnFiles = ".hilbert-ring-";

// The system's error of a file, with its reason (wire/reason.h): "PATH: what: why".
absl::Status FileError(std::string_view path, std::string_view what, int error_number);

enum class Owner { kCaller, kService };  // kService: may name the service's own files

absl::Status CheckFilePath(std::string_view path, Owner owner = Owner::kCaller);

// DATA_ROOT_GONE if it cannot be opened.
absl::StatusOr<Descriptor> OpenRoot(const std::string& path);

// flags: of open(2); O_CLOEXEC is added. Errors of CheckFilePath and FileError.
absl::StatusOr<Descriptor> OpenBeneath(int root, const std::string& path, int flags,
                                       Owner owner = Owner::kCaller);

// FILE_PATH unless it is a regular file: opening a device or FIFO could wait or have effects.
absl::StatusOr<Descriptor> OpenFile(int root, const std::string& path, int flags,
                                    Owner owner = Owner::kCaller);

// Opens the folder of the file at a path.
absl::StatusOr<Descriptor> OpenFolderOf(int root, const std::string& path,
                                        Owner owner = Owner::kCaller);

inline std::string FileNameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

struct FileVersion {
  uint64_t device = 0, inode = 0;
  int64_t bytes = 0;
  int64_t seconds = 0, nanoseconds = 0;  // of the last change
  bool operator==(const FileVersion&) const = default;
};
absl::StatusOr<FileVersion> VersionOf(const Descriptor& file, std::string_view path);

}  // namespace hilbert_ring::server
