#include "server/coordinator/worker_processes.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;

TEST(WorkerEnvironment, IsTouchedOnlyForASharedGpu) {
  EXPECT_THAT(WorkerEnvironment({}, 1), IsEmpty());
  const auto variables = WorkerEnvironment({.share_gpu = true}, 1);
  for (const char* variable : {"NCCL_HOSTID=rank1", "NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1",
                               "NCCL_NET=Socket", "NCCL_SOCKET_IFNAME=lo", "NCCL_MAX_CTAS=1"}) {
    EXPECT_THAT(variables, Contains(variable));
  }
}

TEST(WorkerProcesses, GiveEachWorkerItsArgumentsAndAHostOfItsOwnOnASharedGpu) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / absl::StrCat("workers_", getpid());
  std::filesystem::create_directories(folder);
  WorkerProcesses workers({.program = "/bin/sh",
                           .arguments = {"-c", absl::StrCat("touch ", folder.string(),
                                                            "/$NCCL_HOSTID-$1; exec sleep 60")},
                           .of_workers = {{"sh", "a"}, {"sh", "b"}, {"sh", "c"}},
                           .share_gpu = true});
  const auto hosts = [&] {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      names.insert(entry.path().filename());
    }
    return names;
  };
  for (int i = 0; i < 1000 && hosts().size() < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(hosts(), (std::set<std::string>{"rank0-a", "rank1-b", "rank2-c"}));
  workers.Stop(std::chrono::milliseconds(1000));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace hilbert_ring::server
