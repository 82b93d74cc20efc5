// Processes under which no thread can be started, or no more than a few: calls are refused, the
// process goes on, and stops when it is told to.
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"
#include "tests/support/free_port.h"
#include "tests/support/plain_spec.h"
#include "tests/support/process_account.h"
#include "tests/support/program.h"
#include "tests/support/sanitizer.h"
#include "tests/support/test_folder.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

void ExpectAJobIsRight(const Cluster& cluster) {
  const JobSpec spec = PlainSpec();
  const auto result = AttendRaw(*cluster.Stub(), spec, RandomInputs(spec, 1), 32, 1);
  EXPECT_TRUE(result.ok()) << result.status();
}

// Started where no thread can be: its exit status, and what it said.
std::pair<int, std::string> StartWithout(const std::string& binary, const std::string& folder) {
  const std::string command =
      absl::StrCat("export LD_PRELOAD=", HILBERT_RING_FAILING_THREADS,
                   " NO_THREADS_FOLDER=", folder, "; : > ", folder, "/$$; exec ", binary, " 2>&1");
  FILE* const output = popen(command.c_str(), "r");
  std::string said;
  char part[4096];
  while (const size_t bytes = fread(part, 1, sizeof(part), output)) said.append(part, bytes);
  const int status = pclose(output);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), said};
}

bool Contains(const std::string& text, const char* words) {
  return text.find(words) != std::string::npos;
}

template <typename Done>
bool Within(const Done& done) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!done()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

// A process under which no more threads than so many can be started, for as long as this lives.
class NoThreads {
 public:
  NoThreads(const std::string& folder, pid_t pid, int but = 0)
      : path_(folder + "/" + std::to_string(pid)) {
    std::ofstream(path_) << but;
  }
  ~NoThreads() { std::filesystem::remove(path_); }

 private:
  const std::string path_;
};

class Threads : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kAddressSanitizer || kThreadSanitizer) {
      GTEST_SKIP() << "the sanitizer has its own pthread_create, which must come first; calls that "
                      "find no thread are tested in call_threads_test";
    }
    setenv("LD_PRELOAD", HILBERT_RING_FAILING_THREADS, 1);
    setenv("NO_THREADS_FOLDER", folder_.path().c_str(), 1);
    auto cluster = Cluster::Start({.workers = 2});
    unsetenv("LD_PRELOAD");
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
  }

  // Threads of jobs before are kept for a moment.
  static bool HasKeptThreads(pid_t pid) {
    std::error_code gone;  // of a thread that ends meanwhile
    for (const auto& task :
         std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/task"), gone)) {
      std::string name;
      if (std::ifstream(task.path() / "comm") >> name && name == "kept") return true;
    }
    return false;
  }

  // A job is refused, and told when to come back, while the process has no threads.
  void ExpectRefused(pid_t pid) {
    ASSERT_TRUE(Within([&] { return !HasKeptThreads(pid); }));
    const NoThreads none(folder_.path(), pid);
    const auto stub = cluster_->Stub();
    for (int i = 0; i < 3; ++i) {
      RawCall call(*stub, std::chrono::seconds(20));
      call.Open(PlainSpec());
      const absl::Status status = call.Finish();
      EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
      EXPECT_TRUE(call.pushback_ms().has_value());
    }
    EXPECT_TRUE(IsAlive(pid));
    EXPECT_TRUE(cluster_->HttpGet("/livez").ok());
  }

  // While no worker has threads jobs are refused, but for short ones, which one computes by the
  // thread that hears of them.
  void ExpectWorkersRefuse() {
    std::vector<std::unique_ptr<NoThreads>> none;
    for (const pid_t worker : cluster_->Workers()) {
      ASSERT_TRUE(Within([&] { return !HasKeptThreads(worker); }));
      none.push_back(std::make_unique<NoThreads>(folder_.path(), worker));
    }
    const JobSpec spec = PlainSpec({.tokens = 8192});
    for (int i = 0; i < 2; ++i) {
      const auto result = AttendRaw(*cluster_->Stub(), spec, RandomInputs(spec, 1), 512, 1);
      EXPECT_EQ(wire::ReasonOf(result.status()), "NO_THREADS") << result.status();
    }
    for (const pid_t worker : cluster_->Workers()) EXPECT_TRUE(IsAlive(worker));
  }

  TestFolder folder_;
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(Threads, ACoordinatorThatHasNoneRefusesAndGoesOn) {
  ExpectRefused(cluster_->coordinator());
  ExpectAJobIsRight(*cluster_);
  EXPECT_EQ(cluster_->Stop(), absl::OkStatus());
}

TEST_F(Threads, WorkersThatHaveNoneRefuseAndGoOn) {
  ExpectWorkersRefuse();
  ExpectAJobIsRight(*cluster_);
  // The ring is there now; what is left are the threads of a job.
  ExpectWorkersRefuse();
  ExpectAJobIsRight(*cluster_);
  EXPECT_EQ(cluster_->Stop(), absl::OkStatus());
}

// The job is tried without it.
TEST_F(Threads, AWorkerThatHasNoneIsLeftOut) {
  ExpectAJobIsRight(*cluster_);
  const pid_t worker = cluster_->Workers().front();
  ASSERT_TRUE(Within([&] { return !HasKeptThreads(worker); }));
  {
    const NoThreads none(folder_.path(), worker);
    ExpectAJobIsRight(*cluster_);
    EXPECT_TRUE(IsAlive(worker));
  }
  EXPECT_EQ(cluster_->Stop(), absl::OkStatus());
}

TEST_F(Threads, ACoordinatorThatHasNoneStops) {
  ExpectAJobIsRight(*cluster_);
  const NoThreads none(folder_.path(), cluster_->coordinator());
  const auto stub = cluster_->Stub();
  grpc::ClientContext context;
  v1::GetClusterResponse described;
  const grpc::Status status = stub->GetCluster(&context, {}, &described);
  EXPECT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED)
      << status.error_message();
  EXPECT_EQ(cluster_->Stop(), absl::OkStatus());
}

// Many calls come at once and are left at once, which is when gRPC starts threads of its own: those
// that it does not get must not be missed for ever.
TEST_F(Threads, ACoordinatorThatRunsOutOfThemRefusesAndGoesOn) {
  constexpr int kCalls = 200;
  const pid_t pid = cluster_->coordinator();
  const auto refused = [&] {
    return cluster_->Metric("hilbert_ring_calls_refused_total{reason=\"NO_THREADS\"}").value_or(0);
  };
  for (const int threads : {0, 8, 40}) {
    SCOPED_TRACE(threads);
    ASSERT_TRUE(Within([&] { return !HasKeptThreads(pid); }));
    {
      const double refused_before = refused();
      const NoThreads few(folder_.path(), pid, threads);
      const auto stub = cluster_->Stub();
      std::vector<std::unique_ptr<RawCall>> calls;
      for (int i = 0; i < kCalls; ++i) {
        calls.push_back(std::make_unique<RawCall>(*stub, std::chrono::seconds(60)));
        calls.back()->Open(PlainSpec());
      }
      EXPECT_TRUE(Within([&] { return refused() > refused_before; }));
      for (const auto& call : calls) call->Cancel();
      for (const auto& call : calls) {
        const absl::Status status = call->Finish();
        EXPECT_TRUE(absl::IsCancelled(status) || absl::IsResourceExhausted(status)) << status;
      }
    }
    ExpectAJobIsRight(*cluster_);
    for (const char* count : {"hilbert_ring_jobs_running", "hilbert_ring_jobs_queued"}) {
      EXPECT_TRUE(Within([&] { return cluster_->Metric(count).value_or(-1) == 0; })) << count;
    }
  }
  EXPECT_EQ(cluster_->Stop(), absl::OkStatus());
}

// Its warm-up fails again and again, for its worker has too little memory: as where others take all
// threads of a host meanwhile.
TEST_F(Threads, ACoordinatorThatHasNoneForItsWarmUpGoesOn) {
  const int port = FreePort();
  const std::string log = folder_ / "log";
  setenv("LD_PRELOAD", HILBERT_RING_FAILING_THREADS, 1);
  auto coordinator = Program::Start(
      {.arguments = {HILBERT_RING_COORDINATOR_BINARY, "--spawn-workers=0", "--min-workers=1",
                     "--grpc-port=0", "--http-port=0", absl::StrCat("--membership-port=", port)},
       .log = log});
  unsetenv("LD_PRELOAD");
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  auto worker = Program::Start(
      {.arguments = {HILBERT_RING_WORKER_BINARY, "--port=0", "--http-port=0", "--memory-limit=1KiB",
                     absl::StrCat("--coordinator=127.0.0.1:", port)},
       .log = folder_ / "worker.log"});
  ASSERT_TRUE(worker.ok()) << worker.status();
  const auto says = [&](const char* words) {
    return Within([&] { return !(*coordinator)->Runs() || Contains(FileText(log), words); });
  };
  ASSERT_TRUE(says("the warm-up job over 1 workers failed")) << FileText(log);
  const NoThreads none(folder_.path(), (*coordinator)->pid());
  EXPECT_TRUE(says("tried again: no thread can be started")) << FileText(log);
  EXPECT_TRUE((*coordinator)->Runs()) << FileText(log);
}

TEST_F(Threads, AProcessThatGetsNoneAtItsStartSaysSo) {
  for (const std::string& binary :
       {absl::StrCat(HILBERT_RING_COORDINATOR_BINARY,
                     " --grpc-port=0 --http-port=0 --membership-port=0 --grpc-host=127.0.0.1"),
        absl::StrCat(HILBERT_RING_WORKER_BINARY, " --threads=2 --port=0")}) {
    const auto [status, said] = StartWithout(binary, folder_.path());
    EXPECT_EQ(status, 1) << binary << ": " << said;
    EXPECT_NE(said.find("no thread can be started"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace hilbert_ring::testing
