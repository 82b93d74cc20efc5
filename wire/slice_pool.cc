#include "wire/slice_pool.h"

#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "wire/payload_message.h"

namespace hilbert_ring::wire {

class SlicePool::Buffers {
 public:
  explicit Buffers(int64_t bytes) : bytes_(bytes) {}

  std::unique_ptr<char[]> Take() {
    const MutexLock lock(mutex_);
    if (free_.empty()) return std::make_unique_for_overwrite<char[]>(static_cast<size_t>(bytes_));
    std::unique_ptr<char[]> buffer = std::move(free_.back());
    free_.pop_back();
    return buffer;
  }

  void Return(std::unique_ptr<char[]> buffer) {
    const MutexLock lock(mutex_);
    free_.push_back(std::move(buffer));
  }

 private:
  const int64_t bytes_;
  Mutex mutex_;
  std::vector<std::unique_ptr<char[]>> free_ ABSL_GUARDED_BY(mutex_);
};

SlicePool::SlicePool(int64_t bytes) : buffers_(std::make_shared<Buffers>(bytes)) {}

std::shared_ptr<char[]> SlicePool::Take() {
  return {buffers_->Take().release(),
          [buffers = buffers_](char* back) { buffers->Return(std::unique_ptr<char[]>(back)); }};
}

grpc::Slice SlicePool::Copy(std::string_view payload) { return Copy(Payload(payload)); }

grpc::Slice SlicePool::Copy(const Payload& payload) {
  const std::shared_ptr<char[]> buffer = Take();
  PayloadReader(payload).Read(buffer.get(), payload.bytes());
  return SliceOf({buffer.get(), static_cast<size_t>(payload.bytes())}, buffer);
}

}  // namespace hilbert_ring::wire
