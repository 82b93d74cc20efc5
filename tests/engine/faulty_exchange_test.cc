// Random jobs over a checked exchange on a bad network: the right result or a typed error, in
// bounded time, and nothing left behind.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <set>
#include <thread>

#include "engine/comm/checked.h"
#include "engine/spec/job_spec_json.h"
#include "tests/conformance/faulty.h"
#include "tests/engine/run_engine.h"
#include "tests/random/random_spec.h"

namespace hilbert_ring::testing {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLimit{400};                      // of a job
constexpr milliseconds kMost = std::chrono::seconds(5);  // on a busy machine

size_t Threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

// A thread that was joined is there for a moment longer.
bool ThreadsFallTo(size_t threads) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (Threads() > threads && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  return Threads() <= threads;
}

// What a rank may end with.
bool Typed(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsUnavailable(status) || absl::IsAborted(status);
}

struct Tally {
  int right = 0, failed = 0, with_faults = 0;
};

class FaultyExchange : public ::testing::Test {
 protected:
  // Runs a job that exchanges rows; counts how it ended.
  void RunJob(const FaultOptions& options, uint64_t seed) {
    std::mt19937_64 random(seed);
    const int workers = 2 + static_cast<int>(seed % 3);
    const JobSpec spec = ExchangingSpec(random, workers);
    SCOPED_TRACE(FormatJobSpec(spec));
    const EngineInputs inputs = RandomInputs(spec, random());
    const auto right = RunEngine(spec, inputs, workers, RingKind::kInProcess);
    ASSERT_TRUE(right.ok()) << right.status();

    const auto faults = std::make_shared<Faults>(options, random());
    const auto start = std::chrono::steady_clock::now();
    const CommunicatorRing ring =
        Wrapped(MakeInProcessRing(workers), [&](std::unique_ptr<Communicator> inner) {
          return MakeChecked(MakeFaulty(std::move(inner), faults));
        });
    const auto result = RunEngineOver(
        ring, spec, inputs, {.limit = kLimit, .failed = [&](int rank, const absl::Status& status) {
                               EXPECT_TRUE(Typed(status)) << "rank " << rank << ": " << status;
                               // As a coordinator does that hears of it.
                               for (const auto& other : ring) other->Abort("a rank failed");
                             }});
    EXPECT_LT(std::chrono::steady_clock::now() - start, kLimit + kMost);
    EXPECT_TRUE(ThreadsFallTo(threads_)) << Threads() << " threads, there were " << threads_;
    tally_.with_faults += faults->count() > 0 ? 1 : 0;
    if (!result.ok()) {
      ++tally_.failed;
      return;
    }
    ++tally_.right;
    EXPECT_EQ(result->out, right->out);
    EXPECT_EQ(result->lse, right->lse);
  }

  void RunJobs(const FaultOptions& options, int jobs) {
    for (int job = 0; job < jobs; ++job) {
      SCOPED_TRACE(job);
      RunJob(options, 7000 + job);
      if (HasFailure()) return;
    }
  }

  Tally tally_;
  const size_t threads_ = ThreadsBefore();

 private:
  static size_t ThreadsBefore() {
    std::thread([] {}).join();  // with the first one a sanitizer starts its own
    return Threads();
  }

  static JobSpec ExchangingSpec(std::mt19937_64& random, int workers) {
    while (true) {
      const JobSpec spec = RandomSpec(random);
      const auto plan = MakePlan(spec, workers);
      if (plan.ok() && plan->costs.steps > 0) return spec;
    }
  }
};

TEST_F(FaultyExchange, CorruptedBytesNeverReachAResult) {
  RunJobs({.corrupt = 0.15}, 400);
  EXPECT_GT(tally_.with_faults, 30);
  EXPECT_GE(tally_.failed, tally_.with_faults);  // a flipped bit is never forgiven
  EXPECT_GT(tally_.right, 0);
}

TEST_F(FaultyExchange, ReorderedAndRepeatedBytesNeverReachAResult) {
  RunJobs({.reorder = 0.2, .repeat = 0.2}, 400);
  EXPECT_GT(tally_.with_faults, 20);
  EXPECT_GT(tally_.failed, 0);
  EXPECT_GT(tally_.right, 0);
}

TEST_F(FaultyExchange, AllAtOnce) {
  RunJobs({.drop = 0.01, .corrupt = 0.02, .delay = 0.1, .reorder = 0.05, .repeat = 0.05}, 100);
  EXPECT_GT(tally_.failed, 0);
  EXPECT_GT(tally_.right, 0);
}

}  // namespace
}  // namespace hilbert_ring::testing
