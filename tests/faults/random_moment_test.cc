#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cpp/by_reference.h"
#include "gtest/gtest.h"
#include "tests/engine/expected_rows.h"
#include "tests/engine/run_engine.h"
#include "tests/faults/tally.h"
#include "tests/service/by_reference.h"
#include "tests/service/stream_call.h"
#include "tests/support/await.h"
#include "tests/support/plain_spec.h"
#include "tests/support/program.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Seconds = std::chrono::duration<double>;

constexpr milliseconds kRestoreLimit{30'000};
constexpr milliseconds kClientLimit{60'000};

enum class Victim { kWorker, kCoordinator, kClient };

const char* VictimName(Victim victim) {
  constexpr const char* kNames[] = {"worker", "coordinator", "client"};
  return kNames[static_cast<int>(victim)];
}

std::string Untyped(const absl::Status& status) {
  const bool typed = absl::IsUnavailable(status) || absl::IsAborted(status) ||
                     (!wire::ReasonOf(status).empty() && !absl::IsInternal(status));
  return typed ? "" : status.ToString();
}

class RandomMoment : public ByReferenceTest {
 protected:
  // Runs rounds of `work` as a call of this process, or of `command` as its own process. A fault
  // comes within the time of the first, undisturbed round.
  void Rounds(const std::string& name, uint64_t seed, const std::function<absl::Status()>& work,
              const std::function<std::vector<std::string>()>& command,
              const std::function<std::string()>& left) {
    seed = FaultSeed(name, seed);
    const Clock::time_point begun = Clock::now();
    ASSERT_EQ(work().ToString(), "OK");
    const Seconds undisturbed = Clock::now() - begun;
    const int rounds = RoundsOf(3);
    int right = 0, typed = 0;
    for (int round = 0; round < rounds; ++round) {
      std::mt19937_64 random(seed + round);
      const auto victim = static_cast<Victim>((seed + round) % 3);
      const Seconds moment = undisturbed * std::uniform_real_distribution<>(0, 1)(random);
      const std::string trace = absl::StrCat(name, ", seed ", seed + round, ": ",
                                             VictimName(victim), " after ", moment.count(), " s");
      SCOPED_TRACE(trace);
      std::printf("%s\n", trace.c_str());
      std::fflush(stdout);
      if (victim == Victim::kClient) {
        LoseClient(command(), moment);
      } else {
        const absl::Status status = Lose(victim, moment, random, work);
        EXPECT_EQ(status.ok() ? "" : Untyped(status), "");
        ++(status.ok() ? right : typed);
      }
      const absl::Status restored = cluster_->Restore(kRestoreLimit);
      ASSERT_TRUE(restored.ok()) << restored;
      EXPECT_EQ(left(), "");
      ExpectFree();
      EXPECT_EQ(work().ToString(), "OK") << "of the next call";
      if (HasFatalFailure()) return;
    }
    std::printf("| %s | rounds %d | right %d, typed %d |\n", name.c_str(), rounds, right, typed);
  }

  std::vector<std::string> Attend(const std::string& options) const {
    std::vector<std::string> arguments = absl::StrSplit(options, ' ');
    arguments.insert(arguments.begin(), {HILBERT_RING_CLIENT_BINARY, "attend",
                                         "--server=" + cluster_->address(), "--dilations=1"});
    return arguments;
  }

 private:
  absl::Status Lose(Victim victim, Seconds moment, std::mt19937_64& random,
                    const std::function<absl::Status()>& work) {
    std::future<absl::Status> call = std::async(std::launch::async, work);
    std::this_thread::sleep_for(moment);
    if (victim == Victim::kCoordinator) {
      kill(cluster_->coordinator(), SIGKILL);
      EXPECT_TRUE(cluster_->RestartCoordinator().ok());
    } else {
      const std::vector<pid_t> workers = cluster_->Workers();
      kill(workers[random() % workers.size()], SIGKILL);
      EXPECT_TRUE(cluster_->StartEnded().ok());
    }
    return call.get();
  }

  void LoseClient(std::vector<std::string> command, Seconds moment) {
    auto client = Program::Start({.arguments = std::move(command), .log = folder_ / "client.log"});
    ASSERT_TRUE(client.ok()) << client.status();
    std::this_thread::sleep_for(moment);
    (*client)->Signal(SIGKILL);
    const auto end = (*client)->AwaitEnd(kClientLimit);
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_TRUE(*end == "signal 9" || *end == "exit status 0")
        << *end << ": " << FileText(folder_ / "client.log");
  }

  void ExpectFree() {
    EXPECT_TRUE(Await([this] {
      const auto described = cluster_->Describe();
      if (!described.ok() || described->jobs_running() != 0) return false;
      for (const v1::ClusterWorker& worker : described->workers()) {
        if (worker.memory_used_bytes() != 0) return false;
      }
      return true;
    }));
  }
};

// Each worker has whole segments: the bits do not depend on the number of workers.
TEST_F(RandomMoment, OfJobsByReference) {
  Start({}, WorkerPlace::kBeside);
  if (HasFatalFailure()) return;
  const JobSpec spec = PlainSpec({.tokens = 16'000, .heads = 4, .dim = 64, .segment = 4'000});
  const v1::Open open = Write(spec, RandomInputs(spec, 1));
  const std::vector<v1::TensorFile> files(open.files().begin(), open.files().end());
  const auto path = [this](v1::Tensor tensor) { return folder_ / ("root/" + NameOf(tensor)); };
  std::string expected;
  const auto wrong = [&]() -> std::string {
    if (!std::filesystem::exists(path(v1::TENSOR_OUT))) return "";
    if (expected.empty()) expected = Data(v1::TENSOR_OUT);
    return Data(v1::TENSOR_OUT) == expected ? "" : "OUT.npy is not what it must be";
  };
  const auto remove = [&] {
    for (const v1::Tensor output : {v1::TENSOR_OUT, v1::TENSOR_LSE}) {
      std::filesystem::remove(path(output));
    }
  };
  const auto work = [&]() -> absl::Status {
    remove();
    const auto report =
        client::AttendInFiles(cluster_->address(), spec, files, {.deadline = absl::Seconds(60)});
    if (!report.ok()) return report.status();
    if (!std::filesystem::exists(path(v1::TENSOR_OUT))) return absl::InternalError("no OUT.npy");
    const std::string what = wrong();
    return what.empty() ? absl::OkStatus() : absl::InternalError(what);
  };
  const auto command = [&]() -> std::vector<std::string> {
    remove();
    std::vector<std::string> arguments = Attend("--segments=4000 --by-reference=always");
    for (const auto& [name, tensor] : {std::pair("q", v1::TENSOR_Q),
                                       {"k", v1::TENSOR_K},
                                       {"v", v1::TENSOR_V},
                                       {"out", v1::TENSOR_OUT},
                                       {"lse", v1::TENSOR_LSE}}) {
      arguments.push_back(absl::StrCat("--", name, "=", path(tensor)));
    }
    return arguments;
  };
  const auto left = [&]() -> std::string {
    if (!Await([this] { return Stray().empty(); })) return Stray().front() + " is left";
    return wrong();
  };
  Rounds("random moments of jobs by reference", 21'000, work, command, left);
}

TEST_F(RandomMoment, OfStreams) {
  Start({}, WorkerPlace::kBeside);
  if (HasFatalFailure()) return;
  const JobSpec job = PlainSpec({.tokens = 40'000, .segment = 128});
  const JobSpec stream = StreamOf(job);
  const EngineInputs inputs = RandomInputs(job, 3);
  const auto expected = ExpectRows(job, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const std::map<v1::Tensor, std::string> tensors = EncodeTensors(job, inputs);
  const std::vector<std::pair<std::string, v1::Tensor>> raw = {
      {"q", v1::TENSOR_Q}, {"k", v1::TENSOR_K}, {"v", v1::TENSOR_V}};
  for (const auto& [name, tensor] : raw) {
    std::ofstream(folder_ / name, std::ios::binary) << tensors.at(tensor);
  }
  const auto work = [&]() -> absl::Status {
    const auto streamed =
        AttendInStream(*cluster_, job, stream, inputs, {.epoch_tokens = 512, .block_rows = 700});
    if (!streamed.ok()) return streamed.status();
    const std::string what = Mismatch(job, streamed->result, *expected);
    return what.empty() ? absl::OkStatus() : absl::InternalError(what);
  };
  const auto command = [&]() -> std::vector<std::string> {
    std::vector<std::string> arguments = Attend(
        "--stream --follow --heads=2 --kv-heads=2 --head-dim=16 --value-dim=16 "
        "--dtype=float32 --segments=128 --epoch=512");
    for (const char* name : {"q", "k", "v", "out"}) {
      arguments.push_back(absl::StrCat("--", name, "=", folder_ / name));
    }
    return arguments;
  };
  Rounds("random moments of streams", 22'000, work, command,
         [this]() -> std::string { return Stray().empty() ? "" : Stray().front() + " is left"; });
}

}  // namespace
}  // namespace hilbert_ring::testing
