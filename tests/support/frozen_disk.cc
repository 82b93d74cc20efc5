#include "tests/support/frozen_disk.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/support/own_mounts.h"

namespace hilbert_ring::testing {
namespace {

constexpr int64_t kBytes = 256 << 20;  // of which the file takes what is written

std::string ImageOf(const std::string& path) { return path + ".ext4"; }

bool Ask(const std::string& path, unsigned long what) {
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool done = folder >= 0 && ioctl(folder, what, 0) == 0;
  if (folder >= 0) close(folder);
  return done;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FrozenDisk>> FrozenDisk::Make(const std::string& path) {
  if (absl::Status own = EnterOwnMounts(); !own.ok()) return own;
  const std::string image = ImageOf(path);
  std::ofstream(image).close();
  std::filesystem::resize_file(image, kBytes);
  const std::string make =
      absl::StrCat("PATH=$PATH:/usr/sbin:/sbin; mkfs.ext4 -q '", image, "' >/dev/null 2>&1");
  const std::string mount = absl::StrCat("mount -o loop '", image, "' '", path, "' 2>/dev/null");
  for (const std::string& command : {make, mount}) {
    if (std::system(command.c_str()) == 0) continue;
    std::filesystem::remove(image);
    return absl::FailedPreconditionError(absl::StrCat("cannot: ", command));
  }
  return std::unique_ptr<FrozenDisk>(new FrozenDisk(path));
}

FrozenDisk::~FrozenDisk() {
  Thaw();
  umount2(path_.c_str(), MNT_DETACH);
  std::filesystem::remove(ImageOf(path_));
}

bool FrozenDisk::Freeze() { return Ask(path_, FIFREEZE); }
bool FrozenDisk::Thaw() { return Ask(path_, FITHAW); }

}  // namespace hilbert_ring::testing
