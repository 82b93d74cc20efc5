// Chooses the GPU of each spawned worker.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "server/process/settings.h"

namespace hilbert_ring::server {

struct WorkerPlacement {
  std::string device;      // for the worker's --device
  double gpu_share = 1.0;  // of that GPU's memory
};

// "auto" spreads the workers evenly over the GPUs; "cuda:N" and "auto:N" put all on that GPU.
std::vector<WorkerPlacement> PlaceWorkers(int workers, const std::string& device, int gpus);

// Counts the driver's device files, limited by CUDA_VISIBLE_DEVICES (null: not set), because this
// process does not load CUDA.
int VisibleGpus(const std::filesystem::path& device_files, const char* cuda_visible_devices);

}  // namespace hilbert_ring::server
