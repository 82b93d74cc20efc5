#include "server/worker/worker_device.h"

#include <utility>

#include "engine/device/row_math.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/device/forwarding_device.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMemory = 1000;

class Gpu : public ForwardingDevice {
 public:
  explicit Gpu(absl::StatusOr<RowMath*> math)
      : ForwardingDevice(MakeDevice({.threads = 1}).value()), math_(std::move(math)) {}
  bool host_memory() const override { return false; }
  DeviceInfo info() const override { return {.name = "a GPU", .memory_bytes = kMemory}; }
  absl::StatusOr<RowMath*> row_math() override { return math_; }

 private:
  const absl::StatusOr<RowMath*> math_;
};

TEST(WorkerDevice, WeightsOnAGpuLeaveLessToJobs) {
  Gpu gpu(nullptr);
  EXPECT_EQ(JobMemoryLimit({.model_memory_bytes = 300}, gpu).value(), 1000) << "there are none";
  WorkerSettings settings{.model_dir = "models", .model_memory_bytes = 300};
  EXPECT_EQ(JobMemoryLimit(settings, gpu).value(), 700);
  settings.memory_limit_bytes = 600;
  EXPECT_EQ(JobMemoryLimit(settings, gpu).value(), 600);
  settings.memory_limit_bytes = 800;
  EXPECT_EQ(JobMemoryLimit(settings, gpu).value(), 700);
  settings.model_memory_bytes = 1000;
  const absl::Status none = JobMemoryLimit(settings, gpu).status();
  EXPECT_TRUE(absl::IsInvalidArgument(none)) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("--model-memory is 1000 bytes"));
}

TEST(WorkerDevice, ShortJobsHaveADeviceOfOneThreadEach) {
  for (const auto& [threads, express] : {std::pair{1, 1}, {2, 1}, {4, 3}}) {
    const auto devices = MakeWorkerDevices({.threads = threads, .device = {.device = "cpu"}});
    ASSERT_TRUE(devices.ok()) << devices.status();
    EXPECT_EQ(devices->main->info().threads, threads);
    ASSERT_EQ(static_cast<int>(devices->express.size()), express);
    for (const auto& device : devices->express) EXPECT_EQ(device->info().threads, 1);
  }
}

TEST(WorkerDevice, AGpuWithoutProductsHasNoWeights) {
  Gpu gpu(absl::FailedPreconditionError("products need cuBLASLt"));
  EXPECT_THAT(std::string(CanEncode(gpu).message()), HasSubstr("cuBLASLt"));
  EXPECT_EQ(JobMemoryLimit({.model_dir = "models", .model_memory_bytes = 2000}, gpu).value(), 1000);
}

}  // namespace
}  // namespace hilbert_ring::server
