#include "server/coordinator/worker_placement.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace hilbert_ring::server {
namespace {

// "nvidia0", but not "nvidiactl" or "nvidia-uvm".
bool NamesGpu(std::string_view file) {
  constexpr std::string_view kPrefix = "nvidia";
  return file.starts_with(kPrefix) && file.size() > kPrefix.size() &&
         std::all_of(file.begin() + kPrefix.size(), file.end(),
                     [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
}

}  // namespace

std::vector<WorkerPlacement> PlaceWorkers(int workers, const std::string& device, int gpus) {
  const bool spread = device == "auto" && gpus > 0;
  const bool one_gpu = CudaOrdinal(device).has_value();
  std::vector<WorkerPlacement> placed;
  for (int worker = 0; worker < workers; ++worker) {
    WorkerPlacement place{.device = device};
    if (spread) place.device = absl::StrCat("auto:", worker % gpus);
    if (spread || one_gpu) {
      const int used = one_gpu ? 1 : std::min(gpus, workers);
      const int here = (workers - worker % used - 1) / used + 1;  // workers on this GPU
      place.gpu_share = 1.0 / here;
      place.shares_gpu = here > 1;
    }
    placed.push_back(std::move(place));
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
