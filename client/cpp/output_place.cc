#include "client/cpp/output_place.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace hilbert_ring::client {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // the system's limit

fs::path FolderOf(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

std::optional<int> DescriptorOf(const fs::path& path) {
  int descriptor = -1;
  if (!absl::SimpleAtoi(path.filename().string(), &descriptor)) return std::nullopt;
  std::error_code error;
  const fs::path own = fs::canonical("/proc/self/fd", error);
  if (error || fs::canonical(FolderOf(path), error) != own || error) return std::nullopt;
  return descriptor;
}

bool LiesInProc(const fs::path& path) {
  struct statfs info;
  return statfs(FolderOf(path).c_str(), &info) == 0 && info.f_type == PROC_SUPER_MAGIC;
}

}  // namespace

absl::StatusOr<OutputPlace> FindOutput(const std::string& path) {
  if (path == "-") return OutputPlace{.path = path, .descriptor = STDOUT_FILENO, .in_place = true};
  fs::path at = path;
  for (int links = 0; links <= kMostLinks; ++links) {
    if (const auto descriptor = DescriptorOf(at)) {
      return OutputPlace{.path = path, .descriptor = *descriptor, .in_place = true};
    }
    struct stat info;
    if (lstat(at.c_str(), &info) != 0) {
      if (errno != ENAMETOOLONG) return OutputPlace{.path = at.string()};
      return absl::ErrnoToStatus(errno, absl::StrCat(at.string(), ": cannot write"));
    }
    if (S_ISREG(info.st_mode)) {
      return OutputPlace{.path = at.string(), .mode = static_cast<int>(info.st_mode & ACCESSPERMS)};
    }
    if (!S_ISLNK(info.st_mode)) return OutputPlace{.path = at.string(), .in_place = true};
    // A link in /proc may have no path as its target.
    if (LiesInProc(at)) return OutputPlace{.path = at.string(), .in_place = true};
    std::error_code error;
    const fs::path target = fs::read_symlink(at, error);
    if (error) return OutputPlace{.path = at.string()};  // opening it returns the error
    at = target.is_absolute() ? target : FolderOf(at) / target;
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": cannot write: more than ", kMostLinks, " symbolic links"));
}

bool IsStdout(const std::string& path) {
  if (path.empty()) return false;
  const auto place = FindOutput(path);
  return place.ok() && place->descriptor == STDOUT_FILENO;
}

}  // namespace hilbert_ring::client
