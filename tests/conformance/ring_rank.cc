// A rank of a ring of processes: the program of ring_processes_test.
//
//   ring_rank gloo|nccl RANK SIZE FOLDER steps|endless|abort STEP_LIMIT_MS
//
// Ranks meet by files of FOLDER. "steps" makes a few all-to-all steps and checks their bytes.
// "endless" passes blocks around until a failure. "abort" does so too, and rank 0 aborts after 300
// ms. Writes FOLDER/running.RANK once steps succeed, and the final status to FOLDER/outcome.RANK.
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/comm/checked.h"
#include "engine/comm/communicator.h"
#include "tests/conformance/rank_memory.h"

namespace hilbert_ring::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kConnectLimit{30'000};
constexpr milliseconds kAbortAfter{300};
constexpr int64_t kRunningAfter = 3;  // steps

struct Options {
  std::string kind;
  int rank = 0;
  int size = 0;
  fs::path folder;
  std::string scenario;
  milliseconds step_limit{0};
};

// Readers see the whole file or no file.
void WriteFile(const fs::path& path, const std::string& text) {
  const fs::path draft = path.string() + ".draft";
  std::ofstream(draft, std::ios::binary) << text;
  fs::rename(draft, path);
}

AllGather MeetInFolder(const Options& options) {
  return [&options](const std::string& own,
                    Deadline deadline) -> absl::StatusOr<std::vector<std::string>> {
    const auto blob = [&](int rank) { return options.folder / absl::StrCat("blob.", rank); };
    WriteFile(blob(options.rank), own);
    std::vector<std::string> blobs;
    while (static_cast<int>(blobs.size()) < options.size) {
      const fs::path next = blob(static_cast<int>(blobs.size()));
      if (fs::exists(next)) {
        std::stringstream text;
        text << std::ifstream(next, std::ios::binary).rdbuf();
        blobs.push_back(text.str());
      } else if (Clock::now() >= deadline) {
        return absl::DeadlineExceededError(absl::StrCat("no ", next.string()));
      } else {
        std::this_thread::sleep_for(milliseconds(2));
      }
    }
    return blobs;
  };
}

absl::StatusOr<std::unique_ptr<Communicator>> Join(const Options& options) {
  const Deadline deadline = Clock::now() + kConnectLimit;
  if (options.kind == "nccl") {
    return MakeNcclCommunicator({.rank = options.rank,
                                 .size = options.size,
                                 .ring = "processes",
                                 .deadline = deadline,
                                 .max_ctas = 1},
                                MeetInFolder(options));
  }
  auto made = MakeGlooCommunicator({.rank = options.rank,
                                    .size = options.size,
                                    .host = "127.0.0.1",
                                    .ring = "processes",
                                    .deadline = deadline},
                                   MeetInFolder(options));
  if (!made.ok()) return made;
  return MakeChecked(*std::move(made));
}

// The bytes that `from` sends to `to` in a step.
Bytes Message(int from, int to, int64_t step) {
  const int64_t size = (from + to + step) % 3 * 700'000 + (from + step) % 2;  // 0 among them
  Bytes message(size);
  uint32_t x = 1 + from + 16 * to + 256 * static_cast<uint32_t>(step);
  for (unsigned char& byte : message) {
    x = x * 1664525 + 1013904223;
    byte = static_cast<unsigned char>(x >> 24);
  }
  return message;
}

class Rank {
 public:
  Rank(const Options& options, Communicator& communicator)
      : options_(options), communicator_(communicator) {}

  // Exchanges with all ranks, or sends to the next alone; checks received bytes.
  absl::Status Step(int64_t number, int first_distance, int last_distance) {
    std::vector<std::unique_ptr<RankMemory>> memory;
    std::vector<std::pair<RankMemory*, Bytes>> expected;
    CommStep step{.number = number};
    for (int distance = first_distance; distance <= last_distance; ++distance) {
      const int to = (options_.rank + distance) % options_.size;
      const int from = (options_.rank + options_.size - distance) % options_.size;
      const Bytes sent = Message(options_.rank, to, number);
      auto out = Allocate(sent.size());
      if (!out.ok()) return out.status();
      if (absl::Status status = (*out)->Write(sent); !status.ok()) return status;
      step.sends.push_back(
          {.peer = to, .data = (*out)->data(), .bytes = static_cast<int64_t>(sent.size())});
      Bytes arriving = Message(from, options_.rank, number);
      auto in = Allocate(arriving.size());
      if (!in.ok()) return in.status();
      step.receives.push_back(
          {.peer = from, .data = (*in)->data(), .bytes = static_cast<int64_t>(arriving.size())});
      expected.emplace_back(in->get(), std::move(arriving));
      memory.push_back(*std::move(out));
      memory.push_back(*std::move(in));
    }
    if (absl::Status status = communicator_.Post(step); !status.ok()) return status;
    absl::Status status = communicator_.Wait(Clock::now() + options_.step_limit);
    if (!status.ok()) return status;
    for (const auto& [arrived, bytes] : expected) {
      const absl::StatusOr<Bytes> read = arrived->Read();
      if (!read.ok()) return read.status();
      if (*read != bytes) return absl::UnknownError(absl::StrCat("wrong bytes in step ", number));
    }
    return absl::OkStatus();
  }

  absl::Status Run() {
    std::thread aborter;
    if (options_.scenario == "abort" && options_.rank == 0) {
      aborter = std::thread([this] {
        std::this_thread::sleep_for(kAbortAfter);
        communicator_.Abort("rank 0 gives up");
      });
    }
    absl::Status status;
    const bool all = options_.scenario == "steps";
    for (int64_t t = 0; status.ok() && !(all && t == 10); ++t) {
      status = Step(3 * t, 1, all ? options_.size - 1 : 1);
      if (status.ok() && t == kRunningAfter) {
        WriteFile(options_.folder / absl::StrCat("running.", options_.rank), "");
      }
    }
    if (aborter.joinable()) aborter.join();
    return status;
  }

 private:
  absl::StatusOr<std::unique_ptr<RankMemory>> Allocate(size_t bytes) const {
    const auto size = static_cast<int64_t>(bytes);
    if (options_.kind == "nccl") return MakeCudaMemory(size);
    return MakeHostMemory(size);
  }

  const Options& options_;
  Communicator& communicator_;
};

absl::Status RunRank(const Options& options) {
  auto communicator = Join(options);
  if (!communicator.ok()) return communicator.status();
  return Rank(options, **communicator).Run();
}

}  // namespace
}  // namespace hilbert_ring::testing

int main(int argc, char** argv) {
  using namespace hilbert_ring::testing;
  if (argc != 7) {
    std::fprintf(stderr, "ring_rank KIND RANK SIZE FOLDER SCENARIO STEP_LIMIT_MS\n");
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  const Options options{.kind = argv[1],
                        .rank = std::stoi(argv[2]),
                        .size = std::stoi(argv[3]),
                        .folder = argv[4],
                        .scenario = argv[5],
                        .step_limit = milliseconds(std::stoi(argv[6]))};
  const absl::Status status = RunRank(options);
  WriteFile(options.folder / absl::StrCat("outcome.", options.rank), status.ToString());
  return status.ok() ? 0 : 1;
}
