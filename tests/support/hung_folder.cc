#include "tests/support/hung_folder.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/support/own_mounts.h"

namespace hilbert_ring::testing {

absl::StatusOr<std::unique_ptr<HungFolder>> HungFolder::Mount(const std::string& path) {
  if (absl::Status own = EnterOwnMounts(); !own.ok()) return own;
  const int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (device < 0) {
    return absl::FailedPreconditionError(absl::StrCat("/dev/fuse: ", std::strerror(errno)));
  }
  const std::string options =
      absl::StrCat("fd=", device, ",rootmode=40000,user_id=", geteuid(), ",group_id=", getegid());
  if (mount("hung", path.c_str(), "fuse", 0, options.c_str()) != 0) {
    const int failed = errno;
    close(device);
    return absl::FailedPreconditionError(absl::StrCat("mount: ", std::strerror(failed)));
  }
  return std::unique_ptr<HungFolder>(new HungFolder(path, device));
}

HungFolder::~HungFolder() {
  close(device_);
  umount2(path_.c_str(), MNT_DETACH);
}

}  // namespace hilbert_ring::testing
