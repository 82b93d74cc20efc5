#include "engine/device/cpu/memory.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace hilbert_ring {
namespace {

constexpr int64_t kPageBytes = 4096;

// Buffers of this size and more get huge pages: a large job spends less on faults and address
// translation, and the resident but unused part, 2 MiB at either end, is small.
constexpr int64_t kLeastForHugePages = int64_t{8} << 20;

// The address sanitizer treats the rest of a mapping's last page as out of bounds.
class MappedBuffer : public Buffer {
 public:
  MappedBuffer(std::byte* data, int64_t bytes) : data_(data), bytes_(bytes) {
    ASAN_POISON_MEMORY_REGION(data_ + bytes_, RestOfPage());
  }
  ~MappedBuffer() override {
    ASAN_UNPOISON_MEMORY_REGION(data_ + bytes_, RestOfPage());
    if (bytes_ > 0) munmap(data_, static_cast<size_t>(bytes_));
  }
  MappedBuffer(const MappedBuffer&) = delete;
  MappedBuffer& operator=(const MappedBuffer&) = delete;

  std::byte* data() override { return data_; }
  int64_t bytes() const override { return bytes_; }

 private:
  size_t RestOfPage() const {
    return static_cast<size_t>((kPageBytes - bytes_ % kPageBytes) % kPageBytes);
  }

  std::byte* data_;
  int64_t bytes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Buffer>> MapMemory(int64_t bytes) {
  if (bytes == 0) return std::make_unique<MappedBuffer>(nullptr, 0);
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the system refused ", bytes, " bytes of memory: ", std::strerror(errno)));
  }
  // Without huge pages the system keeps the small ones.
  if (bytes >= kLeastForHugePages) madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return std::make_unique<MappedBuffer>(static_cast<std::byte*>(data), bytes);
}

}  // namespace hilbert_ring
