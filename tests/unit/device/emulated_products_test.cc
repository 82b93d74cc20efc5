// Calls of cuBLASLt: an algorithm once a shape, and every object is freed.
#include <memory>

#include "engine/device/row_math.h"
#include "gtest/gtest.h"
#include "tests/unit/device/cuda_emulation/cublaslt_calls.h"
#include "tests/unit/device/kernel_options.h"

namespace hilbert_ring {
namespace {

constexpr int64_t kWorkspaceBytes = 4096;

class EmulatedProducts : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = MakeDevice(OptionsFor("cuda", 0)).value();
    memory_ = device_->Allocate(1 << 20).value();
    before_ = emulation::CountedLtCalls();
  }

  // Multiplies zeros. from: bytes after an address aligned to 256.
  absl::Status Multiply(int64_t rows, int64_t from = 0, DataType dtype = DataType::kFloat32) {
    const auto math = device_->row_math();
    if (!math.ok()) return math.status();
    std::byte* const data = memory_->data();
    const ModelStep step = ProductTask{.dtype = dtype,
                                       .rows = rows,
                                       .in = 24,
                                       .out = 16,
                                       .from = data + kWorkspaceBytes + from,
                                       .weights = data + (256 << 10),
                                       .to = reinterpret_cast<float*>(data + (512 << 10)),
                                       .workspace = data,
                                       .workspace_bytes = kWorkspaceBytes};
    return (*math)->Run({&step, 1});
  }

  int64_t Asked() const { return emulation::CountedLtCalls().heuristics - before_.heuristics; }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Buffer> memory_;
  emulation::LtCalls before_;
};

TEST_F(EmulatedProducts, AnAlgorithmIsAskedForOncePerShape) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Multiply(8).ok());
    EXPECT_EQ(Asked(), 1);
  }
  EXPECT_TRUE(Multiply(9).ok());
  EXPECT_TRUE(Multiply(8, 0, DataType::kBFloat16).ok());
  EXPECT_EQ(Asked(), 3);
  // Worse alignment is another shape, because the library gets the alignment.
  EXPECT_TRUE(Multiply(8, 4).ok());
  EXPECT_TRUE(Multiply(8, 16).ok());
  EXPECT_EQ(Asked(), 5);
  EXPECT_TRUE(Multiply(8).ok());
  EXPECT_EQ(Asked(), 5);
}

TEST_F(EmulatedProducts, EverythingIsGivenBack) {
  ASSERT_TRUE(Multiply(8).ok());
  EXPECT_GT(emulation::CountedLtCalls().alive, before_.alive);
  memory_.reset();
  device_.reset();
  EXPECT_EQ(emulation::CountedLtCalls().alive, before_.alive);
}

}  // namespace
}  // namespace hilbert_ring
