#include "bench/page_cache.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring::bench {
namespace {

// Pages in transit to the system's lists are dropped only by a later try.
constexpr int kTries = 3;

absl::Status Failed(const std::string& path) { return absl::ErrnoToStatus(errno, path); }

absl::StatusOr<int64_t> BytesInMemory(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return Failed(path);
  const absl::Cleanup close_file = [file] { close(file); };
  struct stat found = {};
  if (fstat(file, &found) != 0) return Failed(path);
  if (found.st_size == 0) return 0;
  const auto size = static_cast<size_t>(found.st_size);
  void* const mapped = mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);  // loads no page
  if (mapped == MAP_FAILED) return Failed(path);
  const absl::Cleanup unmap = [mapped, size] { munmap(mapped, size); };
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((size + page - 1) / page);
  if (mincore(mapped, size, pages.data()) != 0) return Failed(path);
  return static_cast<int64_t>(page) *
         std::ranges::count_if(pages, [](unsigned char is) { return (is & 1U) != 0; });
}

}  // namespace

bool LiesInMemory(const std::string& folder) {
  struct statfs system = {};
  if (statfs(folder.c_str(), &system) != 0) return false;
  return system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC;
}

absl::Status DropPages(const std::string& path) {
  int64_t left = 0;
  for (int tries = 0; tries < kTries; ++tries) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return Failed(path);
    const absl::Cleanup close_file = [file] { close(file); };
    if (fsync(file) != 0) return Failed(path);  // dirty pages are not dropped
    if (const int error = posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED); error != 0) {
      return absl::ErrnoToStatus(error, path);
    }
    ASSIGN_OR_RETURN(left, BytesInMemory(path));
    if (left == 0) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": ", left, " bytes stay in memory, must be 0"));
}

}  // namespace hilbert_ring::bench
