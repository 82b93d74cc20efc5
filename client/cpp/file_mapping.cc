#include "client/cpp/file_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"

namespace hilbert_ring::client {
namespace {

struct WatchedMapping {
  std::atomic<bool> taken = false;
  std::atomic<uintptr_t> begin = 0, end = 0;  // 0: no mapping
  std::atomic<bool> lost = false;
};

// Global, because a signal handler has no context. A command has at most six mappings.
constinit std::array<WatchedMapping, 64> watched_mappings;
constinit std::atomic<uintptr_t> page_bytes = 0;

static_assert(std::atomic<uintptr_t>::is_always_lock_free, "a signal handler must not wait");

// Replaces the mapping of `address` by zeros, from its page on.
bool Replace(uintptr_t address) {
  for (WatchedMapping& mapping : watched_mappings) {
    const uintptr_t end = mapping.end;
    if (address < mapping.begin || address >= end) continue;
    const uintptr_t page = address / page_bytes * page_bytes;
    void* zeros = mmap(reinterpret_cast<void*>(page), end - page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (zeros == MAP_FAILED) return false;
    mapping.lost = true;
    return true;
  }
  return false;
}

void OnBusError(int signal, siginfo_t* info, void* /*context*/) {
  const int error = errno;
  if (info->si_code != BUS_ADRERR || !Replace(reinterpret_cast<uintptr_t>(info->si_addr))) {
    std::signal(signal, SIG_DFL);
    raise(signal);  // delivered when the handler returns
  }
  errno = error;
}

int Watch(uintptr_t begin, uintptr_t end) {
  for (size_t place = 0; place < watched_mappings.size(); ++place) {
    WatchedMapping& mapping = watched_mappings[place];
    if (mapping.taken.exchange(true)) continue;
    mapping.lost = false;
    mapping.end = end;
    mapping.begin = begin;
    return static_cast<int>(place);
  }
  return -1;
}

void Unwatch(int place) {
  WatchedMapping& mapping = watched_mappings[static_cast<size_t>(place)];
  mapping.end = 0;
  mapping.begin = 0;
  mapping.taken = false;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileMapping>> FileMapping::Map(int fd, int64_t bytes,
                                                              int protection) {
  Descriptor own(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (own.number() < 0) return absl::ErrnoToStatus(errno, "cannot keep the file open");
  void* begin = mmap(nullptr, static_cast<size_t>(bytes), protection, MAP_SHARED, fd, 0);
  if (begin == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot map ", bytes, " bytes"));
  }
  return absl::WrapUnique(new FileMapping(static_cast<std::byte*>(begin), bytes, std::move(own)));
}

FileMapping::FileMapping(std::byte* begin, int64_t bytes, Descriptor file)
    : begin_(begin),
      bytes_(bytes),
      file_(std::move(file)),
      watched_(Watch(reinterpret_cast<uintptr_t>(begin),
                     reinterpret_cast<uintptr_t>(begin) + static_cast<uintptr_t>(bytes))) {}

FileMapping::~FileMapping() {
  if (watched_ >= 0) Unwatch(watched_);
  munmap(begin_, static_cast<size_t>(bytes_));
}

bool FileMapping::Intact() const {
  if (watched_ >= 0 && watched_mappings[static_cast<size_t>(watched_)].lost) return false;
  struct stat info;
  return fstat(file_.number(), &info) == 0 && info.st_size >= bytes_;
}

void CatchLostBytes() {
  page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  struct sigaction action = {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace hilbert_ring::client
