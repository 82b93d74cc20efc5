// Files that callers name, opened beneath a folder and nowhere else.
//
//   ASSIGN_OR_RETURN(const Descriptor root, OpenRoot("/srv/tensors"));
//   ASSIGN_OR_RETURN(const Descriptor file, OpenFile(root.number(), "night/q.npy", O_RDONLY));
//
// No part of a path may be "..", a symbolic link, or begin with the name that the service's own
// files have. The system sees to that (openat2, Linux 5.6); where it has no such call, or a
// container does not let it through, the path is walked folder by folder, which is as safe: each
// step begins at the folder that is open, and follows no link.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/files/descriptor.h"

namespace hilbert_ring::server {

// Files of the service beneath a data root begin so, and callers' do not.
inline constexpr std::string_view kOwnFiles = ".hilbert-ring-";

// What the system said of a file, with the reason that it means (wire/reason.h): "PATH: what: why".
absl::Status FileError(std::string_view path, std::string_view what, int error_number);

// FILE_PATH, naming the path and what it may not have.
enum class Owner { kCaller, kService };  // the service alone names files of its own
absl::Status CheckFilePath(std::string_view path, Owner owner = Owner::kCaller);

// DATA_ROOT_GONE where it cannot be opened.
absl::StatusOr<Descriptor> OpenRoot(const std::string& path);

enum class Descent { kBySystem, kStepByStep };

// flags: of open(2); O_CLOEXEC is added. Errors of CheckFilePath and FileError.
absl::StatusOr<Descriptor> OpenBeneath(int root, const std::string& path, int flags,
                                       Descent descent = Descent::kBySystem,
                                       Owner owner = Owner::kCaller);

// A regular file: of anything else nothing is opened that could answer to it, or wait.
// FILE_PATH.
absl::StatusOr<Descriptor> OpenFile(int root, const std::string& path, int flags,
                                    Descent descent = Descent::kBySystem,
                                    Owner owner = Owner::kCaller);

// One of the service's own: an output that is not whole yet.
absl::StatusOr<Descriptor> OpenOwnFile(int root, const std::string& path, int flags);

// Which file it is, and whether it was written to since.
struct FileVersion {
  uint64_t device = 0, inode = 0;
  int64_t bytes = 0;
  int64_t seconds = 0, nanoseconds = 0;  // when its contents changed last
  bool operator==(const FileVersion&) const = default;
};
absl::StatusOr<FileVersion> VersionOf(const Descriptor& file, std::string_view path);

}  // namespace hilbert_ring::server
