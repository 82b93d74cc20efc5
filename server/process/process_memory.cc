#include "server/process/process_memory.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <limits>

namespace hilbert_ring::server {

void TuneMalloc() {
  constexpr int kKeptBytes = 32 << 20;
  mallopt(M_MMAP_THRESHOLD, kKeptBytes);
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  // Each arena keeps as much memory, and each thread would have an arena.
  constexpr int kArenas = 1;
  mallopt(M_ARENA_MAX, kArenas);
}

void RaiseFileLimit() {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

void TrimMalloc(int64_t bytes) {
  constexpr int64_t kLeastBytes = 8 << 20;
  static std::atomic<int64_t> moved = 0;  // since the last trim
  if ((moved += bytes) < kLeastBytes) return;
  moved = 0;
  malloc_trim(0);
}

int64_t ResidentBytes() {
  static const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  std::array<char, 128> text = {};
  if (pread(file, text.data(), text.size() - 1, 0) <= 0) return 0;
  char* rest = nullptr;
  std::strtoll(text.data(), &rest, 10);  // the total size
  return std::strtoll(rest, nullptr, 10) * sysconf(_SC_PAGESIZE);
}

int64_t UsableMemoryBytes() {
  int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  if (bytes <= 0) bytes = std::numeric_limits<int64_t>::max();
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    int64_t limit = 0;  // stays 0 for "max"
    if (file >> limit && limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

}  // namespace hilbert_ring::server
