#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/cluster/worker_processes.h"

namespace hilbert_ring::server {
namespace {

TEST(PlaceWorkers, EachHasAGpuAShareOrTheGivenDevice) {
  struct Case {
    int workers;
    const char* device;
    int gpus;
    std::vector<std::pair<std::string, double>> placed;
  };
  for (const Case& row : {
           Case{3, "auto", 4, {{"auto:0", 1}, {"auto:1", 1}, {"auto:2", 1}}},
           Case{3, "auto", 2, {{"auto:0", 0.5}, {"auto:1", 1}, {"auto:0", 0.5}}},
           Case{2, "cuda:1", 8, {{"cuda:1", 0.5}, {"cuda:1", 0.5}}},
           Case{2, "auto:1", 8, {{"auto:1", 0.5}, {"auto:1", 0.5}}},
           Case{1, "cuda:1", 8, {{"cuda:1", 1}}},
           Case{2, "auto", 0, {{"auto", 1}, {"auto", 1}}},
           Case{2, "auto:1", 0, {{"auto:1", 1}, {"auto:1", 1}}},
           Case{2, "cpu", 8, {{"cpu", 1}, {"cpu", 1}}},
       }) {
    SCOPED_TRACE(absl::StrCat(row.workers, " ", row.device, " ", row.gpus));
    std::vector<std::pair<std::string, double>> placed;
    for (const WorkerPlacement& place : PlaceWorkers(row.workers, row.device, row.gpus)) {
      placed.emplace_back(place.device, place.gpu_share);
    }
    EXPECT_EQ(placed, row.placed);
  }
}

TEST(VisibleGpus, AreDeviceFilesThatCudaMayUse) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / absl::StrCat("devices_", getpid());
  std::filesystem::create_directories(folder);
  for (const char* name :
       {"nvidia0", "nvidia1", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia", "null"}) {
    std::ofstream(folder / name) << "";
  }
  EXPECT_EQ(VisibleGpus(folder, nullptr), 3);
  EXPECT_EQ(VisibleGpus(folder, "1,12"), 2);
  EXPECT_EQ(VisibleGpus(folder, "GPU-5fd9,GPU-77aa,GPU-1234,GPU-5678"), 3);
  EXPECT_EQ(VisibleGpus(folder, ""), 0);
  EXPECT_EQ(VisibleGpus(folder / "missing", nullptr), 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace hilbert_ring::server
