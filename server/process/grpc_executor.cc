#include "server/process/grpc_executor.h"

#include <grpc/grpc.h>
#include <grpc/support/cpu.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/alarm.h"
#include "server/process/deadline.h"
#include "server/process/threads.h"

namespace hilbert_ring::server {
namespace {

// It starts a thread when one has more than two things to do.
constexpr int kTasksForAThread = 3;

constexpr std::chrono::milliseconds kStartLimit{5'000};  // of a machine that is busy
constexpr std::chrono::milliseconds kCountInterval{1};

// Threads of this process that have the executor's name.
int CountThreads() {
  int count = 0;
  std::error_code error;  // of a thread that ends meanwhile
  std::filesystem::directory_iterator thread("/proc/self/task", error);
  for (const std::filesystem::directory_iterator end; !error && thread != end;
       thread.increment(error)) {
    std::string name;
    if (std::ifstream(thread->path() / "comm") >> name && name == "default-executo") ++count;
  }
  return count;
}

// How many there are once there are so many, or the limit has passed. A thread names itself when it
// runs.
int AwaitThreads(int count) {
  const Deadline limit = Clock::now() + kStartLimit;
  int there = CountThreads();
  while (there < count && Clock::now() < limit) {
    std::this_thread::sleep_for(kCountInterval);
    there = CountThreads();
  }
  return there;
}

absl::Status StartThreads() {
  // A process that serves keeps gRPC until it ends. Its shutdown (1.51) waits for timer threads,
  // also for one that could not be started where the process had no thread left, and so for ever.
  grpc_init();
  const int threads = 2 * static_cast<int>(gpr_cpu_num_cores());
  // Alarms that are due run on the executor. None of these ends before all have been given to it.
  std::promise<void> all_given;
  const auto given = all_given.get_future().share();
  std::vector<grpc::Alarm> alarms(static_cast<size_t>(threads) * kTasksForAThread);
  for (grpc::Alarm& alarm : alarms) {
    alarm.Set(std::chrono::system_clock::time_point(), [given](bool) { given.wait(); });
  }
  all_given.set_value();
  const int there = AwaitThreads(threads);
  // None: a gRPC without an executor, or no thread can be started at all, as the listener will say.
  if (there >= threads || there == 0) return absl::OkStatus();
  return NoThreads(std::system_error(
      std::make_error_code(std::errc::resource_unavailable_try_again),
      absl::StrCat("gRPC has ", there, " of the ", threads, " that it may need")));
}

}  // namespace

absl::Status StartGrpcExecutor() {
  static const absl::Status started = StartThreads();
  return started;
}

}  // namespace hilbert_ring::server
