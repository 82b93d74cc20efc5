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

// From here on the system is asked for huge pages: a large job spends less on faults and on looking
// addresses up, and what may be resident without being used, 2 MiB at either end, is a small part.
constexpr int64_t kLeastForHugePages = int64_t{8} << 20;

// The rest of a mapping's last page is out of bounds, which the address sanitizer is told (nothing
// is done in other builds).
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
  // Where the system has none, it stays with what there is.
  if (bytes >= kLeastForHugePages) madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return std::make_unique<MappedBuffer>(static_cast<std::byte*>(data), bytes);
}

}  // namespace hilbert_ring
