#include "client/cpp/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/write_all.h"
#include "engine/base/random_bits.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring::client {
namespace {

constexpr int kTries = 100;  // other clients may remove a folder between two calls of this one
constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

absl::Status Failed(const std::string& what) { return absl::ErrnoToStatus(errno, what); }

struct Modes {
  mode_t folder = 0, file = 0;
};

absl::StatusOr<Modes> ModesFor(const std::string& folder, uid_t service_user) {
  if (service_user == geteuid() || service_user == 0) return Modes{0700, 0600};
  struct stat found = {};
  if (stat(folder.c_str(), &found) != 0) return Failed(folder);
  if ((found.st_mode & S_ISGID) != 0 && (found.st_mode & S_IRWXG) == S_IRWXG) {
    return Modes{02770, 0660};  // the folder's group includes both
  }
  return absl::FailedPreconditionError(
      absl::StrCat(folder, ": the service is another user's, and no group is given to its files"));
}

std::vector<std::string> NamesIn(const Descriptor& folder) {
  std::vector<std::string> names;
  const int own = openat(folder.number(), ".", kFolder);
  DIR* const listing = own < 0 ? nullptr : fdopendir(own);
  if (listing == nullptr) return names;
  while (const dirent* const entry = readdir(listing)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(listing);
  return names;
}

// Tries twice: the service may add an output of an ending job in between.
void Remove(const Descriptor& users, const std::string& name, const Descriptor& folder) {
  for (int round = 0; round < 2; ++round) {
    for (const std::string& file : NamesIn(folder)) unlinkat(folder.number(), file.c_str(), 0);
    if (unlinkat(users.number(), name.c_str(), AT_REMOVEDIR) == 0 || errno != ENOTEMPTY) return;
  }
}

void RemoveLeftovers(const Descriptor& users) {
  for (const std::string& name : NamesIn(users)) {
    const Descriptor folder(openat(users.number(), name.c_str(), kFolder));
    if (flock(folder.number(), LOCK_EX | LOCK_NB) == 0) Remove(users, name, folder);
  }
}

absl::StatusOr<Descriptor> OpenUsers(const std::string& path, mode_t mode) {
  // chmod: mkdir applies the umask.
  if (mkdir(path.c_str(), mode) == 0) {
    if (chmod(path.c_str(), mode) != 0) return Failed(path);
  } else if (errno != EEXIST) {
    return Failed(path);
  }
  Descriptor users(open(path.c_str(), kFolder));
  if (users.number() < 0) return Failed(path);
  struct stat found = {};
  if (fstat(users.number(), &found) == 0 && found.st_uid == geteuid()) return users;
  return absl::FailedPreconditionError(absl::StrCat(path, ": is another user's"));
}

// Returns a descriptor; empty if another client has removed it or the user's folder.
Descriptor MakeLocked(int users, const std::string& word, mode_t mode) {
  if (mkdirat(users, word.c_str(), mode) != 0) return Descriptor();
  Descriptor made(openat(users, word.c_str(), kFolder));
  const int folder = made.number();
  struct stat own = {}, named = {};
  if (fchmod(folder, mode) == 0 && flock(folder, LOCK_EX | LOCK_NB) == 0 &&
      fstat(folder, &own) == 0 && fstatat(users, word.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
      own.st_ino == named.st_ino) {
    return made;
  }
  return Descriptor();
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
    ASSIGN_OR_RETURN(Descriptor users, OpenUsers(users_path, modes.folder));
    RemoveLeftovers(users);
    const std::string word = absl::StrCat(absl::Hex(DrawBits(), absl::kZeroPad16));
    Descriptor made = MakeLocked(users.number(), word, modes.folder);
    if (made.number() < 0) continue;
    return Scratch(users_path, absl::StrCat(users_name, "/", word), std::move(users),
                   std::move(made), modes.file);
  }
  return absl::FailedPreconditionError(
      absl::StrCat(users_path, ": no folder can be made and kept in it"));
}

Scratch::~Scratch() {
  if (folder_.number() < 0) return;
  Remove(users_, beneath_.substr(beneath_.rfind('/') + 1), folder_);
  rmdir(users_path_.c_str());  // fails if this user has other folders in it
}

absl::Status Scratch::Write(const std::string& name, std::span<const std::byte> bytes) const {
  const Descriptor file(openat(folder_.number(), name.c_str(),
                               O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, file_mode_));
  if (file.number() < 0 || fchmod(file.number(), file_mode_) != 0) return Failed(name);
  return WriteAll(file, bytes, name);
}

absl::Status Scratch::Read(const std::string& name, std::span<std::byte> to) const {
  const Descriptor file(openat(folder_.number(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (file.number() < 0) return Failed(name);
  while (!to.empty()) {
    const ssize_t bytes = read(file.number(), to.data(), to.size());
    if (bytes == 0) {
      return absl::DataLossError(absl::StrCat(name, ": ", to.size(), " more bytes were expected"));
    }
    if (bytes > 0) {
      to = to.subspan(static_cast<size_t>(bytes));
    } else if (errno != EINTR) {
      return Failed(name);
    }
  }
  return absl::OkStatus();
}

}  // namespace hilbert_ring::client
