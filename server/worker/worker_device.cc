#include "server/worker/worker_device.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/comm/communicator.h"
#include "server/process/logging.h"
#include "server/process/process_memory.h"

namespace hilbert_ring::server {
namespace {

constexpr double kMemoryShare = 0.8;
constexpr int kBrokenDevice = 3;        // exit status
constexpr int kMostExpressLanes = 255;  // each keeps a thread

AttentionKernel KernelNamed(const std::string& name) {
  if (name == "cudnn") return AttentionKernel::kCudnn;
  return name == "native" ? AttentionKernel::kNative : AttentionKernel::kAuto;
}

absl::StatusOr<std::unique_ptr<Device>> MakeWorkerDevice(const WorkerSettings& settings) {
  DeviceOptions options{.threads = settings.threads,
                        .instructions = settings.cpu_instructions,
                        .ordinal = GpuOrdinal(settings.device.device).value_or(0),
                        .memory_fraction = settings.device.gpu_memory_fraction,
                        .attention_kernel = KernelNamed(settings.device.attention_kernel)};
  if (settings.device.device.starts_with("auto")) {
    options.kind = DeviceKind::kCuda;
    auto gpu = MakeDevice(options);
    if (gpu.ok()) return gpu;
    spdlog::info("device auto: the CPU computes: {}", std::string(gpu.status().message()));
    options.kind = DeviceKind::kCpu;
  } else {
    options.kind = settings.device.device == "cpu" ? DeviceKind::kCpu : DeviceKind::kCuda;
  }
  return MakeDevice(options);
}

}  // namespace

absl::StatusOr<WorkerDevices> MakeWorkerDevices(const WorkerSettings& settings) {
  ASSIGN_OR_RETURN(auto main, MakeWorkerDevice(settings));
  WorkerSettings short_jobs = settings;
  short_jobs.threads = 1;
  if (main->host_memory()) short_jobs.device.device = "cpu";
  const int lanes =
      main->host_memory() ? std::clamp(main->info().threads - 1, 1, kMostExpressLanes) : 1;
  WorkerDevices devices{.main = std::move(main)};
  for (int lane = 0; lane < lanes; ++lane) {
    ASSIGN_OR_RETURN(auto express, MakeWorkerDevice(short_jobs));
    devices.express.push_back(std::move(express));
  }
  return devices;
}

absl::Status CanEncode(Device& device) {
  return device.host_memory() ? absl::OkStatus() : device.row_math().status();
}

bool IsBroken(Device& device, const absl::Status& error) {
  if (error.GetPayload(kMemoryInUse).has_value()) return true;
  if (!absl::IsInternal(error) || device.host_memory()) return false;
  constexpr int64_t kFloats = 16;
  float copy[kFloats] = {};
  const auto buffer = device.Allocate(sizeof(copy));
  if (!buffer.ok()) return !absl::IsResourceExhausted(buffer.status());
  auto* const floats = reinterpret_cast<float*>((*buffer)->data());
  return !device.FillFloats(floats, kFloats, 1).ok() ||
         !device.CopyOut(copy, floats, sizeof(copy)).ok() || copy[kFloats - 1] != 1;
}

void EndAtOnce(const absl::Status& broken) {
  spdlog::critical("the device is broken, this process ends: {}", std::string(broken.message()));
  FlushLog();
  std::_Exit(kBrokenDevice);
}

absl::StatusOr<int64_t> JobMemoryLimit(const WorkerSettings& settings, Device& device) {
  if (!device.host_memory()) {
    int64_t most = device.info().memory_bytes;
    if (!settings.model_dir.empty() && CanEncode(device).ok()) {
      if (settings.model_memory_bytes >= most) {
        return absl::InvalidArgumentError(absl::StrCat(
            "--model-memory is ", settings.model_memory_bytes, " bytes, must be less than the ",
            most, " bytes of the GPU that this worker may take"));
      }
      most -= settings.model_memory_bytes;
    }
    return settings.memory_limit_bytes > 0 ? std::min(settings.memory_limit_bytes, most) : most;
  }
  if (settings.memory_limit_bytes > 0) return settings.memory_limit_bytes;
  return static_cast<int64_t>(kMemoryShare * settings.memory_share *
                              static_cast<double>(UsableMemoryBytes()));
}

}  // namespace hilbert_ring::server
