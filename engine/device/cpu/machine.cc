#include "engine/device/cpu/machine.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hilbert_ring {
namespace {

// A container sees its own control group at the root.
constexpr char kProcessorQuota[] =
    "/sys/fs/cgroup/cpu.max";  // "<quota> <period>" or "max <period>"
constexpr char kMemoryLimit[] = "/sys/fs/cgroup/memory.max";  // bytes or "max"

}  // namespace

std::string ProcessorName() {
  // Read once for all devices: the kernel makes the file for each reader, processor by processor.
  static const std::string name = []() -> std::string {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
      if (!line.starts_with("model name")) continue;
      const size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
    return "CPU";
  }();
  return name;
}

int UsableThreads() {
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) threads = CPU_COUNT(&set);
  std::ifstream file(kProcessorQuota);
  double quota = 0, period = 0;
  if (file >> quota >> period && quota > 0 && period > 0) {
    threads = std::min(threads, static_cast<int>((quota + period - 1) / period));
  }
  return std::max(1, threads);
}

std::optional<int64_t> SecondLevelCacheBytes() {
  const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (bytes <= 0) return std::nullopt;
  return bytes;
}

bool HasAvx512BFloat16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

bool BFloat16PairsAreFaster() {
#if defined(__x86_64__)
  return HasAvx512BFloat16() && __builtin_cpu_is("amd");
#else
  return false;
#endif
}

bool AllowAmxBFloat16() {
#if defined(__x86_64__)
  static const bool allowed = [] {
    constexpr unsigned kAmxBFloat16 = 1u << 22, kAmxTile = 1u << 24;  // of leaf 7's EDX
    constexpr int64_t kRequestPermission = 0x1023;                    // ARCH_REQ_XCOMP_PERM
    constexpr int64_t kTileData = 18;                                 // XFEATURE_XTILEDATA
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
    if ((edx & kAmxBFloat16) == 0 || (edx & kAmxTile) == 0) return false;
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return allowed;
#else
  return false;
#endif
}

int64_t UsableMemoryBytes() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  int64_t bytes = pages > 0 && page_bytes > 0 ? pages * page_bytes : 0;
  std::ifstream file(kMemoryLimit);
  int64_t limit = 0;
  if (file >> limit && limit > 0) bytes = bytes == 0 ? limit : std::min(bytes, limit);
  return bytes;
}

}  // namespace hilbert_ring
