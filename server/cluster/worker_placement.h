// Which GPU each spawned worker computes on. Pure, but for VisibleGpus.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "server/process/settings.h"

namespace hilbert_ring::server {

struct WorkerPlacement {
  std::string device;      // as --device of the worker takes it
  double gpu_share = 1.0;  // of that GPU's memory; below 1 where other workers have the rest
};

// "auto" spreads the workers over the GPUs, one after the other, so that as many workers as GPUs
// have one each; "cuda:N" and "auto:N" put all of them on that GPU.
std::vector<WorkerPlacement> PlaceWorkers(int workers, const std::string& device, int gpus);

// As many as the driver's device files say, and at most those that CUDA_VISIBLE_DEVICES names
// (null: not set). This process itself does not load CUDA.
int VisibleGpus(const std::filesystem::path& device_files, const char* cuda_visible_devices);

}  // namespace hilbert_ring::server
