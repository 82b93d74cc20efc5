#include "client/cpp/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/random_bits.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring::client {
namespace {

constexpr int kTries = 100;  // against clients that remove a folder between two calls of this one
constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

absl::Status Failed(const std::string& what) { return absl::ErrnoToStatus(errno, what); }

struct Modes {
  mode_t folder = 0, file = 0;
};

// For this user and the service alone.
absl::StatusOr<Modes> ModesFor(const std::string& folder, uid_t service_user) {
  if (service_user == geteuid() || service_user == 0) return Modes{0700, 0600};
  struct stat found = {};
  if (stat(folder.c_str(), &found) != 0) return Failed(folder);
  if ((found.st_mode & S_ISGID) != 0 && (found.st_mode & S_IRWXG) == S_IRWXG) {
    return Modes{02770, 0660};  // the folder's group is that of both
  }
  return absl::FailedPreconditionError(
      absl::StrCat(folder, ": the service is another user's, and no group is given to its files"));
}

std::vector<std::string> NamesIn(int folder) {
  std::vector<std::string> names;
  const int own = openat(folder, ".", kFolder);
  DIR* const listing = own < 0 ? nullptr : fdopendir(own);
  if (listing == nullptr) return names;
  while (const dirent* const entry = readdir(listing)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(listing);
  return names;
}

// Twice where need be: the service may make an output, of a job that ends, between the two calls.
void Remove(int users, const std::string& name, int folder) {
  for (int round = 0; round < 2; ++round) {
    for (const std::string& file : NamesIn(folder)) unlinkat(folder, file.c_str(), 0);
    if (unlinkat(users, name.c_str(), AT_REMOVEDIR) == 0 || errno != ENOTEMPTY) return;
  }
}

void RemoveLeftovers(int users) {
  for (const std::string& name : NamesIn(users)) {
    const int folder = openat(users, name.c_str(), kFolder);
    if (folder < 0) continue;
    if (flock(folder, LOCK_EX | LOCK_NB) == 0) Remove(users, name, folder);
    close(folder);
  }
}

absl::StatusOr<int> OpenUsers(const std::string& path, mode_t mode) {
  // Whatever the umask says.
  if (mkdir(path.c_str(), mode) == 0) {
    if (chmod(path.c_str(), mode) != 0) return Failed(path);
  } else if (errno != EEXIST) {
    return Failed(path);
  }
  const int users = open(path.c_str(), kFolder);
  if (users < 0) return Failed(path);
  struct stat found = {};
  if (fstat(users, &found) == 0 && found.st_uid == geteuid()) return users;
  close(users);
  return absl::FailedPreconditionError(absl::StrCat(path, ": is another user's"));
}

// A descriptor; nothing where another client has removed it, or the user's folder, meanwhile.
std::optional<int> MakeLocked(int users, const std::string& word, mode_t mode) {
  if (mkdirat(users, word.c_str(), mode) != 0) return std::nullopt;
  const int folder = openat(users, word.c_str(), kFolder);
  if (folder < 0) return std::nullopt;
  struct stat own = {}, named = {};
  if (fchmod(folder, mode) == 0 && flock(folder, LOCK_EX | LOCK_NB) == 0 &&
      fstat(folder, &own) == 0 && fstatat(users, word.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
      own.st_ino == named.st_ino) {
    return folder;
  }
  close(folder);
  return std::nullopt;
}

std::optional<int64_t> MemoryAvailable() {
  std::ifstream lines("/proc/meminfo");
  std::string name, unit;
  int64_t kibibytes = 0;
  while (lines >> name >> kibibytes) {
    if (name == "MemAvailable:") return kibibytes << 10;
    std::getline(lines, unit);
  }
  return std::nullopt;
}

}  // namespace

absl::Status CheckMemoryRoom(const std::string& folder, int64_t bytes) {
  struct statfs system = {};
  if (statfs(folder.c_str(), &system) != 0) return Failed(folder);
  if (system.f_type != TMPFS_MAGIC) {
    return absl::FailedPreconditionError(absl::StrCat(folder, ": does not lie in memory"));
  }
  const auto free = static_cast<int64_t>(system.f_bavail) * system.f_bsize;
  if (system.f_blocks > 0 && free < bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(folder, " has ", free, " bytes, must have ", bytes));
  }
  const std::optional<int64_t> available = MemoryAvailable();
  if (available && *available < 2 * bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the machine has ", *available, " bytes of memory, must have ", 2 * bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<Scratch> Scratch::Make(const std::string& folder, uid_t service_user) {
  ASSIGN_OR_RETURN(const Modes modes, ModesFor(folder, service_user));
  const std::string users_name = absl::StrCat("hilbert-ring-scratch-", geteuid());
  const std::string users_path = absl::StrCat(folder, "/", users_name);
  for (int tries = 0; tries < kTries; ++tries) {
    ASSIGN_OR_RETURN(const int users, OpenUsers(users_path, modes.folder));
    RemoveLeftovers(users);
    const std::string word = absl::StrCat(absl::Hex(DrawBits(), absl::kZeroPad16));
    if (const std::optional<int> made = MakeLocked(users, word, modes.folder)) {
      return Scratch(users_path, absl::StrCat(users_name, "/", word), users, *made, modes.file);
    }
    close(users);
  }
  return absl::FailedPreconditionError(
      absl::StrCat(users_path, ": no folder can be made and kept in it"));
}

Scratch::Scratch(Scratch&& other) noexcept
    : users_path_(std::move(other.users_path_)),
      beneath_(std::move(other.beneath_)),
      users_(std::exchange(other.users_, -1)),
      folder_(std::exchange(other.folder_, -1)),
      file_mode_(other.file_mode_) {}

Scratch::~Scratch() {
  if (folder_ < 0) return;
  Remove(users_, beneath_.substr(beneath_.rfind('/') + 1), folder_);
  close(folder_);
  close(users_);
  rmdir(users_path_.c_str());  // unless this user has other folders in it
}

absl::Status Scratch::Write(const std::string& name, std::span<const std::byte> bytes) const {
  const int file = openat(folder_, name.c_str(),
                          O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, file_mode_);
  if (file < 0) return Failed(name);
  absl::Status status;
  if (fchmod(file, file_mode_) != 0) status = Failed(name);
  while (status.ok() && !bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(written));
    } else if (errno == ENOSPC || errno == EDQUOT) {
      status = absl::ResourceExhaustedError(absl::StrCat(name, ": the disk is full"));
    } else if (errno != EINTR) {
      status = Failed(name);
    }
  }
  close(file);
  return status;
}

absl::Status Scratch::Read(const std::string& name, std::span<std::byte> to) const {
  const int file = openat(folder_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0) return Failed(name);
  absl::Status status;
  for (off_t at = 0; status.ok() && !to.empty();) {
    const ssize_t bytes = pread(file, to.data(), to.size(), at);
    if (bytes > 0) {
      to = to.subspan(static_cast<size_t>(bytes));
      at += bytes;
    } else if (bytes == 0) {
      status = absl::DataLossError(
          absl::StrCat(name, ": has ", at, " bytes, ", to.size(), " more were expected"));
    } else if (errno != EINTR) {
      status = Failed(name);
    }
  }
  close(file);
  return status;
}

}  // namespace hilbert_ring::client
