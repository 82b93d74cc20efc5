#include "server/cluster/worker_placement.h"

#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

TEST(PlaceWorkers, OneGpuEachWhereThereAreEnough) {
  for (const int gpus : {4, 8}) {
    const auto placed = PlaceWorkers(4, "auto", gpus);
    ASSERT_EQ(placed.size(), 4u);
    for (int worker = 0; worker < 4; ++worker) {
      EXPECT_EQ(placed[worker].device, absl::StrCat("auto:", worker));
      EXPECT_EQ(placed[worker].gpu_share, 1);
    }
  }
}

TEST(PlaceWorkers, TheOthersShare) {
  const auto placed = PlaceWorkers(5, "auto", 3);
  ASSERT_EQ(placed.size(), 5u);
  const char* const devices[] = {"auto:0", "auto:1", "auto:2", "auto:0", "auto:1"};
  for (int worker = 0; worker < 5; ++worker) {
    EXPECT_EQ(placed[worker].device, devices[worker]);
    EXPECT_EQ(placed[worker].gpu_share, worker == 2 ? 1 : 0.5) << worker;
  }
}

TEST(PlaceWorkers, AllOnTheGpuThatIsNamed) {
  for (const char* device : {"cuda:1", "auto:1"}) {
    for (const WorkerPlacement& place : PlaceWorkers(2, device, 8)) {
      EXPECT_EQ(place.device, device);
      EXPECT_EQ(place.gpu_share, 0.5);
    }
    EXPECT_EQ(PlaceWorkers(1, device, 8)[0].gpu_share, 1);
  }
}

TEST(PlaceWorkers, WithoutGpusTheDeviceIsWhatWasAsked) {
  for (const char* device : {"auto", "auto:1", "cpu"}) {
    for (const WorkerPlacement& place : PlaceWorkers(3, device, 0)) {
      EXPECT_EQ(place.device, device);
      EXPECT_EQ(place.gpu_share, 1);
    }
  }
  EXPECT_EQ(PlaceWorkers(2, "cpu", 8)[1].device, "cpu");
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
