// A worker whose device fails it. HILBERT_RING_DEVICE_FAULT says how.
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "server/process/logging.h"
#include "server/process/stop_signals.h"
#include "server/worker/worker_process.h"

namespace hilbert_ring::testing {
namespace {

enum class Fault {
  kWrongScores,  // arithmetic errs a little, and nothing else tells
  kBroken,       // as a GPU's context after an error: it does nothing any more
};

constexpr Fault kFault = Fault::HILBERT_RING_DEVICE_FAULT;

class FaultyDevice final : public Device {
 public:
  explicit FaultyDevice(std::unique_ptr<Device> right) : right_(std::move(right)) {}

  absl::StatusOr<AttendFigures> Attend(std::span<const AttentionTask> tasks,
                                       const AttendControl& control) override {
    if (kFault == Fault::kBroken) {
      broken_ = true;
      return Broken();
    }
    std::vector<AttentionTask> wrong(tasks.begin(), tasks.end());
    for (AttentionTask& task : wrong) task.scale *= 1.05F;
    return right_->Attend(wrong, control);
  }

  DeviceInfo info() const override { return right_->info(); }
  bool host_memory() const override { return kFault != Fault::kBroken && right_->host_memory(); }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override {
    return right_->Allocate(bytes);
  }
  absl::Status CopyIn(void* to, const void* from, int64_t bytes) override {
    return right_->CopyIn(to, from, bytes);
  }
  absl::Status CopyRowsIn(const RowsIn& rows) override { return right_->CopyRowsIn(rows); }
  absl::Status CopyOut(void* to, const void* from, int64_t bytes) override {
    return right_->CopyOut(to, from, bytes);
  }
  absl::Status FillFloats(float* to, int64_t count, float value) override {
    return broken_ ? Broken() : right_->FillFloats(to, count, value);
  }
  absl::Status FillSequence(int64_t* to, int64_t count, int64_t first) override {
    return right_->FillSequence(to, count, first);
  }
  absl::Status AddZeroKeys(std::span<const ZeroKeysTask> tasks) override {
    return right_->AddZeroKeys(tasks);
  }
  absl::Status Finalize(std::span<const FinalizeTask> tasks) override {
    return right_->Finalize(tasks);
  }
  absl::Status Pack(std::span<const PackTask> tasks) override { return right_->Pack(tasks); }

 private:
  static absl::Status Broken() { return absl::InternalError("an illegal instruction was met"); }

  const std::unique_ptr<Device> right_;
  bool broken_ = false;
};

absl::Status Run(const server::WorkerSettings& settings) {
  auto devices = server::MakeWorkerDevices(settings);
  if (!devices.ok()) return devices.status();
  return server::RunWorker(
      settings, {.main = std::make_unique<FaultyDevice>(std::move(devices->main)),
                 .express = std::make_unique<FaultyDevice>(std::move(devices->express))});
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
