#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/cpu/cpu_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/worker/worker_device.h"
#include "tests/unit/device/forwarding_device.h"
#include "tests/unit/device/kernel_options.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;

// It errs a little, in one of the types alone.
class ErringDevice : public ForwardingDevice {
 public:
  explicit ErringDevice(DataType dtype)
      : ForwardingDevice(*MakeDevice({.threads = 1})), dtype_(dtype) {}
  absl::StatusOr<AttendFigures> Attend(std::span<const AttentionTask> tasks,
                                       const AttendControl& control) override {
    std::vector<AttentionTask> wrong(tasks.begin(), tasks.end());
    for (AttentionTask& task : wrong) {
      if (task.dtype == dtype_) task.scale *= 1.05F;
    }
    return ForwardingDevice::Attend(wrong, control);
  }

 private:
  const DataType dtype_;
};

class FullDevice : public ForwardingDevice {
 public:
  FullDevice() : ForwardingDevice(*MakeDevice({.threads = 1})) {}
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t /*bytes*/) override {
    return absl::ResourceExhaustedError("no memory");
  }
};

TEST(SelfTest, PassesOnEveryKernel) {
  std::vector<std::string> kernels = CudaKernels();
  for (const std::string& name : RunnableCpuInstructions()) kernels.push_back("cpu/" + name);
  for (const std::string& kernel : kernels) {
    const auto device = MakeDevice(OptionsFor(kernel, 2));
    ASSERT_TRUE(device.ok()) << device.status();
    const absl::Status status = SelfTest(**device);
    EXPECT_TRUE(status.ok()) << kernel << ": " << status;
  }
}

TEST(SelfTest, NamesARowThatIsWrong) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    ErringDevice device(dtype);
    EXPECT_THAT(std::string(SelfTest(device).message()), HasSubstr(" of token "));
  }
}

TEST(SelfTest, SaysWhyTheDeviceComputesNothing) {
  FullDevice device;
  EXPECT_EQ(SelfTest(device), absl::ResourceExhaustedError("no memory"));
}

}  // namespace
}  // namespace hilbert_ring::server
