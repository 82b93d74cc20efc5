#include <memory>
#include <string>
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

TEST(SelfTest, NamesAWrongRow) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    ErringDevice device(dtype);
    EXPECT_THAT(std::string(SelfTest(device).message()), HasSubstr(" of token "));
  }
}

}  // namespace
}  // namespace hilbert_ring::server
