// A worker with a faulty device (HILBERT_RING_DEVICE_FAULT). The fault begins after the self-test,
// unless the environment has HILBERT_RING_FAULT_AT_ONCE.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/process/logging.h"
#include "server/process/stop_signals.h"
#include "server/worker/worker.h"
#include "tests/unit/device/forwarding_device.h"

namespace hilbert_ring::testing {
namespace {

enum class Fault {
  kWrongScores,  // a small error of the arithmetic
  kBroken,       // like a GPU's context after an error: every call fails
  kNoMemory,     // the system has less memory than the worker registers
};

constexpr Fault kFault = Fault::HILBERT_RING_DEVICE_FAULT;

class FaultyDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  bool host_memory() const override { return kFault != Fault::kBroken && device().host_memory(); }

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override {
    if (kFault == Fault::kNoMemory) {
      return absl::ResourceExhaustedError(absl::StrCat("the system refused ", bytes, " bytes"));
    }
    return device().Allocate(bytes);
  }

  absl::StatusOr<AttendFigures> Attend(std::span<const AttentionTask> tasks,
                                       const AttendControl& control) override {
    if (kFault == Fault::kBroken) {
      broken_ = true;
      return Broken();
    }
    std::vector<AttentionTask> wrong(tasks.begin(), tasks.end());
    for (AttentionTask& task : wrong) task.scale *= 1.05F;
    return device().Attend(wrong, control);
  }

  absl::Status FillFloats(float* to, int64_t count, float value) override {
    return broken_ ? Broken() : device().FillFloats(to, count, value);
  }

 private:
  static absl::Status Broken() { return absl::InternalError("an illegal instruction was met"); }

  bool broken_ = false;
};

absl::Status Run(const server::WorkerSettings& settings) {
  auto devices = server::MakeWorkerDevices(settings);
  if (!devices.ok()) return devices.status();
  devices->main = std::make_unique<FaultyDevice>(std::move(devices->main));
  for (auto& express : devices->express) {
    express = std::make_unique<FaultyDevice>(std::move(express));
  }
  const bool at_once = std::getenv("HILBERT_RING_FAULT_AT_ONCE") != nullptr;
  absl::Status self_test = at_once ? server::SelfTest(*devices->main) : absl::OkStatus();
  const auto worker = server::Worker::Start(settings, *std::move(devices), std::move(self_test));
  if (worker.ok()) (*worker)->Run();
  return worker.status();
}

}  // namespace
}  // namespace hilbert_ring::testing

int main(int argc, char** argv) {
  using namespace hilbert_ring::server;
  BlockStopSignals();
  const auto parsed = ParseWorkerSettings(argc, argv);
  if (const int* code = std::get_if<int>(&parsed)) return *code;
  const auto& settings = std::get<WorkerSettings>(parsed);
  StartLogging("worker", settings.log_level);
  const absl::Status status = hilbert_ring::testing::Run(settings);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
