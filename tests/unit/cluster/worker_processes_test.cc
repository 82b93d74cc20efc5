#include "server/cluster/worker_processes.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/test_folder.h"

namespace hilbert_ring::server {
namespace {

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

constexpr char kListener[] =
    "import os, socket, sys, time\n"
    "s = socket.create_server(('127.0.0.1', 0))\n"
    "name = sys.argv[1] + '/' + str(os.getpid())\n"
    "open(name + '.part', 'w').write(str(s.getsockname()[1]))\n"
    "os.rename(name + '.part', name)\n"
    "time.sleep(60)\n";

class ListeningWorkers {
 public:
  ListeningWorkers(int workers, std::chrono::milliseconds silence_limit)
      : workers({.program = "/usr/bin/python3",
                 .arguments = {"-c", kListener, folder_.path()},
                 .of_workers = std::vector<std::vector<std::string>>(workers),
                 .heard = [this] { return Heard(); },
                 .silence_limit = silence_limit}) {}

  // Sets the ports of members; by its return the supervisor has asked for them.
  void SetMembers(const std::set<int>& ports) {
    const int64_t asked = asked_;
    {
      const std::scoped_lock lock(mutex_);
      members_ = ports;
    }
    for (int i = 0; i < 3000 && asked_ < asked + 2; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_GE(asked_, asked + 2);
  }

  // Ports by process, ended ones too, as soon as there are `least`.
  std::map<int, int> Ports(size_t least) const {
    std::map<int, int> ports;
    for (int i = 0; i < 3000 && ports.size() < least; ++i) {
      ports.clear();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
        if (entry.path().has_extension()) continue;
        std::ifstream(entry.path()) >> ports[std::stoi(entry.path().filename())];
      }
    }
    return ports;
  }

 private:
  std::set<int> Heard() {
    const std::scoped_lock lock(mutex_);
    ++asked_;
    return members_;
  }

  const testing::TestFolder folder_;
  std::mutex mutex_;
  std::set<int> members_;
  std::atomic<int64_t> asked_ = 0;

 public:
  WorkerProcesses workers;  // ends before the folder
};

TEST(WorkerProcesses, ReplaceTheOneThatListensAtAPort) {
  if (access("/usr/bin/python3", X_OK) != 0) GTEST_SKIP() << "no /usr/bin/python3";
  ListeningWorkers listening(2, std::chrono::hours(1));
  const std::map<int, int> before = listening.Ports(2);
  ASSERT_EQ(before.size(), 2u);
  const auto [process, port] = *before.begin();
  const auto other = *before.rbegin();
  EXPECT_TRUE(ListensAt(process, port));
  EXPECT_FALSE(ListensAt(process, other.second));
  EXPECT_FALSE(ListensAt(1, port));
  listening.workers.Replace(port);
  const std::map<int, int> after = listening.Ports(3);
  EXPECT_EQ(after.size(), 3u);
  EXPECT_FALSE(ListensAt(process, port));
  EXPECT_TRUE(ListensAt(other.first, other.second));
  for (const auto& [id, at] : after) {
    if (id != process) {
      EXPECT_TRUE(ListensAt(id, at)) << id;
    }
  }
}

// A stopped process does not obey SIGTERM either.
TEST(WorkerProcesses, ReplaceAStoppedWorkerThatFallsSilent) {
  if (access("/usr/bin/python3", X_OK) != 0) GTEST_SKIP() << "no /usr/bin/python3";
  ListeningWorkers listening(2, std::chrono::seconds(2));
  const std::map<int, int> before = listening.Ports(2);
  ASSERT_EQ(before.size(), 2u);
  const auto stopped = *before.begin(), heard = *before.rbegin();
  listening.SetMembers({stopped.second, heard.second});
  ASSERT_EQ(kill(stopped.first, SIGSTOP), 0);
  listening.SetMembers({heard.second});
  const std::map<int, int> after = listening.Ports(3);
  EXPECT_EQ(after.size(), 3u);
  EXPECT_FALSE(ListensAt(stopped.first, stopped.second));
  EXPECT_TRUE(ListensAt(heard.first, heard.second));
  EXPECT_EQ(listening.workers.restarts(), 1);
}

// Other workers may come and go: members, and workers that have not yet been one.
TEST(WorkerProcesses, ReplaceNoOtherSilentWorker) {
  if (access("/usr/bin/python3", X_OK) != 0) GTEST_SKIP() << "no /usr/bin/python3";
  ListeningWorkers listening(3, std::chrono::milliseconds(600));
  std::vector<int> ports;
  for (const auto& [process, port] : listening.Ports(3)) ports.push_back(port);
  ASSERT_EQ(ports.size(), 3u);
  listening.SetMembers({ports[0], ports[1]});
  listening.SetMembers({ports[0]});
  listening.SetMembers({ports[0], ports[1]});
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_EQ(listening.workers.restarts(), 0);
  listening.SetMembers({ports[0]});
  EXPECT_EQ(listening.Ports(4).size(), 4u);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_EQ(listening.workers.restarts(), 1) << "the worker that never was a member stays";
}

}  // namespace
}  // namespace hilbert_ring::server
