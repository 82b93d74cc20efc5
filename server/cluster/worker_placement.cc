#include "server/cluster/worker_placement.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace hilbert_ring::server {
namespace {

// "nvidia0", not "nvidiactl" or "nvidia-uvm".
bool NamesGpu(std::string_view file) {
  constexpr std::string_view kPrefix = "nvidia";
  return file.starts_with(kPrefix) && file.size() > kPrefix.size() &&
         std::all_of(file.begin() + kPrefix.size(), file.end(),
                     [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
}

}  // namespace

std::vector<WorkerPlacement> PlaceWorkers(int workers, const std::string& device, int gpus) {
  const bool on_gpus = device.starts_with("cuda:") || (device.starts_with("auto") && gpus > 0);
  std::vector<WorkerPlacement> placed(workers, WorkerPlacement{.device = device});
  if (!on_gpus) return placed;
  const bool spread = !GpuOrdinal(device).has_value();
  const int used = spread ? std::min(gpus, workers) : 1;
  for (int worker = 0; worker < workers; ++worker) {
    const int gpu = worker % used;
    const int workers_there = (workers - gpu - 1) / used + 1;
    if (spread) placed[worker].device = absl::StrCat("auto:", gpu);
    placed[worker].gpu_share = 1.0 / workers_there;
  }
  return placed;
}

int VisibleGpus(const std::filesystem::path& device_files, const char* cuda_visible_devices) {
  int gpus = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(device_files, error)) {
    if (NamesGpu(entry.path().filename().native())) ++gpus;
  }
  if (cuda_visible_devices == nullptr) return gpus;
  const std::vector<std::string> named =
      absl::StrSplit(cuda_visible_devices, ',', absl::SkipWhitespace());
  return std::min(gpus, static_cast<int>(named.size()));
}

}  // namespace hilbert_ring::server
