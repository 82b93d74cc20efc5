#include "tests/conformance/rank_memory.h"

namespace hilbert_ring::testing {
namespace {

class HostMemory : public RankMemory {
 public:
  explicit HostMemory(int64_t bytes) : bytes_(bytes) {}

  void* data() override { return bytes_.data(); }
  absl::Status Write(const Bytes& bytes) override {
    bytes_ = bytes;
    return absl::OkStatus();
  }
  absl::StatusOr<Bytes> Read() override { return bytes_; }

 private:
  Bytes bytes_;
};

}  // namespace

std::unique_ptr<RankMemory> MakeHostMemory(int64_t bytes) {
  return std::make_unique<HostMemory>(bytes);
}

}  // namespace hilbert_ring::testing
