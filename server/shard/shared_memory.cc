#include "server/shard/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/random_bits.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring::server {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kMostBytes = int64_t{1} << 62;

// From this length on a system call writes in half the time of the mapping, because no page is
// cleared first or faults.
constexpr int64_t kLeastFileWrite = 4 * kPageBytes;
constexpr size_t kBatch = 256;                       // parts of a system call
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;  // a mapped page is always there

int64_t MappedBytes(int64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes + kPageBytes;
}

// Up to this size all pages are mapped at once, because faults take much of a small job's time.
constexpr int64_t kPopulatedBytes = 1 << 20;

absl::Status SystemError(const char* what) {
  return absl::FailedPreconditionError(
      absl::StrCat("shared memory: ", what, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::shared_ptr<SharedMemory>> SharedMemory::Create(int64_t bytes) {
  std::shared_ptr<SharedMemory> memory(new SharedMemory);
  memory->bytes_ = bytes;
  memory->descriptor_ = memfd_create("hilbert-ring-shard", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memory->descriptor_ < 0) return SystemError("memfd_create");
  if (ftruncate(memory->descriptor_, MappedBytes(bytes)) != 0) return SystemError("ftruncate");
  if (fcntl(memory->descriptor_, F_ADD_SEALS, kSeals) != 0) return SystemError("seals");
  RETURN_IF_ERROR(memory->Map());
  const uint64_t mark = DrawBits();
  std::memcpy(memory->tail(), &mark, sizeof(mark));
  return memory;
}

absl::StatusOr<std::shared_ptr<SharedMemory>> SharedMemory::Open(const v1::SharedMemory& offer) {
  if (offer.bytes() < 0 || offer.bytes() > kMostBytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("shared memory: ", offer.bytes(), " bytes are offered"));
  }
  std::shared_ptr<SharedMemory> memory(new SharedMemory);
  memory->bytes_ = offer.bytes();
  const std::string path =
      absl::StrCat("/proc/", offer.process(), "/fd/", offer.descriptor_number());
  memory->descriptor_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (memory->descriptor_ < 0) return SystemError(path.c_str());
  struct stat file = {};
  // Another container may have another process of that number.
  if (fstat(memory->descriptor_, &file) != 0 || file.st_size != MappedBytes(offer.bytes()) ||
      fcntl(memory->descriptor_, F_GET_SEALS) != kSeals) {
    return absl::FailedPreconditionError(absl::StrCat("shared memory: ", path, " is another file"));
  }
  RETURN_IF_ERROR(memory->Map());
  uint64_t mark = 0;
  std::memcpy(&mark, memory->tail(), sizeof(mark));
  if (mark != offer.mark()) {
    return absl::FailedPreconditionError(absl::StrCat("shared memory: ", path, " is another one"));
  }
  return memory;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(MappedBytes(bytes_)));
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status SharedMemory::Write(std::byte* to, wire::PayloadReader& from, int64_t bytes) {
  if (bytes < kLeastFileWrite) {
    from.Read(to, bytes);
    return absl::OkStatus();
  }
  const wire::Payload payload = from.Next(bytes);
  off_t at = to - data_;
  std::vector<iovec> batch;
  int64_t batch_bytes = 0;
  for (size_t i = 0; i < payload.parts().size(); ++i) {
    const std::string_view part = payload.parts()[i];
    batch.push_back({const_cast<char*>(part.data()), part.size()});
    batch_bytes += static_cast<int64_t>(part.size());
    if (batch.size() < kBatch && i + 1 < payload.parts().size()) continue;
    if (pwritev(descriptor_, batch.data(), static_cast<int>(batch.size()), at) != batch_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat("shared memory: cannot write ", batch_bytes,
                                                       " bytes of a shard of ", bytes_, ": ",
                                                       std::strerror(errno)));
    }
    at += batch_bytes;
    batch.clear();
    batch_bytes = 0;
  }
  return absl::OkStatus();
}

void SharedMemory::Discard(const std::byte* from, int64_t bytes) {
  const int64_t begin = (from - data_ + kPageBytes - 1) / kPageBytes * kPageBytes;
  const int64_t end = (from - data_ + bytes) / kPageBytes * kPageBytes;
  if (begin >= end) return;
  // On failure the pages are freed with the memory.
  (void)fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, end - begin);
}

absl::Status SharedMemory::Map() {
  const int populate = bytes_ <= kPopulatedBytes ? MAP_POPULATE : 0;
  void* data = mmap(nullptr, static_cast<size_t>(MappedBytes(bytes_)), PROT_READ | PROT_WRITE,
                    MAP_SHARED | populate, descriptor_, 0);
  if (data == MAP_FAILED) return SystemError("mmap");
  data_ = static_cast<std::byte*>(data);
  return absl::OkStatus();
}

std::byte* SharedMemory::tail() const { return data_ + MappedBytes(bytes_) - kPageBytes; }

v1::SharedMemory SharedMemory::offer() const {
  uint64_t mark = 0;
  std::memcpy(&mark, tail(), sizeof(mark));
  v1::SharedMemory offer;
  offer.set_process(getpid());
  offer.set_descriptor_number(descriptor_);
  offer.set_bytes(bytes_);
  offer.set_mark(mark);
  offer.set_used(used_);
  return offer;
}

bool MayShareMemory(const std::string& address) {
  return absl::StartsWith(address, "127.") || absl::StartsWith(address, "localhost:") ||
         absl::StartsWith(address, "[::1]:");
}

}  // namespace hilbert_ring::server
