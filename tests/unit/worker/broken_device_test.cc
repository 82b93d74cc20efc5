#include <memory>

#include "absl/strings/cord.h"
#include "engine/comm/communicator.h"
#include "gtest/gtest.h"
#include "server/worker/worker_device.h"
#include "tests/unit/device/forwarding_device.h"

namespace hilbert_ring::server {
namespace {

class OtherMemory : public ForwardingDevice {
 public:
  OtherMemory() : ForwardingDevice(*MakeDevice({.threads = 1})) {}
  bool host_memory() const override { return false; }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override {
    if (!allocate.ok()) return allocate;
    return ForwardingDevice::Allocate(bytes);
  }
  absl::Status FillFloats(float* to, int64_t count, float value) override {
    return fill.ok() ? ForwardingDevice::FillFloats(to, count, value + added) : fill;
  }
  absl::Status CopyOut(void* to, const void* from, int64_t bytes) override {
    return copy.ok() ? ForwardingDevice::CopyOut(to, from, bytes) : copy;
  }

  absl::Status allocate, fill, copy;
  float added = 0;  // to all that it fills
};

const absl::Status kError = absl::InternalError("a launch failed");

TEST(IsBroken, ADeviceThatStillWorksIsNot) {
  OtherMemory device;
  EXPECT_FALSE(IsBroken(device, kError));
}

TEST(IsBroken, ADeviceThatFailsOrComputesWrongIs) {
  for (const auto part : {&OtherMemory::allocate, &OtherMemory::fill, &OtherMemory::copy}) {
    OtherMemory device;
    device.*part = absl::InternalError("the context is lost");
    EXPECT_TRUE(IsBroken(device, kError));
  }
  OtherMemory device;
  device.added = 1;
  EXPECT_TRUE(IsBroken(device, kError));
}

TEST(IsBroken, ADeviceWithoutFreeMemoryIsNot) {
  OtherMemory device;
  device.allocate = absl::ResourceExhaustedError("no memory");
  EXPECT_FALSE(IsBroken(device, kError));
}

TEST(IsBroken, OtherErrorsAndTheHostsMemoryNeedNoProbe) {
  OtherMemory device;
  device.allocate = absl::InternalError("the context is lost");
  EXPECT_FALSE(IsBroken(device, absl::OkStatus()));
  EXPECT_FALSE(IsBroken(device, absl::CancelledError("cancelled")));
  EXPECT_FALSE(IsBroken(**MakeDevice({.threads = 1}), kError));
}

TEST(IsBroken, AProcessWhoseMemoryIsStillWrittenToIs) {
  absl::Status error = absl::InternalError("a transfer does not end");
  error.SetPayload(kMemoryInUse, absl::Cord());
  OtherMemory device;
  EXPECT_TRUE(IsBroken(device, error));
  EXPECT_TRUE(IsBroken(**MakeDevice({.threads = 1}), error));
}

}  // namespace
}  // namespace hilbert_ring::server
