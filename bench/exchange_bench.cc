// What an exchange costs, with checksums and without, as a Markdown table, which ./dev bench
// records.
//
//   exchange_bench             best of 5 rounds
//   exchange_bench --quick     a smoke test: small, one round
//
// Two ranks, threads of one process, each send a block to the other and receive one: nothing
// computes meanwhile, so all of the exchange is exposed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "bench/measure.h"
#include "tests/conformance/communicator_rings.h"

namespace hilbert_ring::bench {
namespace {

using hilbert_ring::testing::After;
using hilbert_ring::testing::CommunicatorRing;
using hilbert_ring::testing::RingKind;

constexpr auto kLimit = std::chrono::seconds(60);

// Seconds of a step.
double StepSeconds(const CommunicatorRing& ring, int64_t bytes, int64_t first, int64_t steps) {
  std::vector<std::vector<char>> out(2, std::vector<char>(bytes, 'x')), in = out;
  const double seconds = SecondsOf([&] {
    testing::RunRanks(ring, [&](int rank, Communicator& communicator) {
      for (int64_t t = 0; t < steps; ++t) {
        absl::Status status = communicator.Post(
            {.number = first + t,
             .sends = {{.peer = 1 - rank, .data = out[rank].data(), .bytes = bytes}},
             .receives = {{.peer = 1 - rank, .data = in[rank].data(), .bytes = bytes}}});
        if (status.ok()) status = communicator.Wait(After(kLimit));
        if (!status.ok()) {
          std::fprintf(stderr, "%s\n", status.ToString().c_str());
          std::exit(1);
        }
      }
    });
  });
  return seconds / static_cast<double>(steps);
}

void Run(int rounds, const std::vector<int64_t>& sizes) {
  std::printf("%s\n\n", MachineLine().c_str());
  std::vector<std::vector<std::string>> table = {
      {"exchange", "block", "ms a step", "GB/s a rank", "ms a step, checked", "of that checksums"}};
  for (const auto& [plain, checked] : {std::pair(RingKind::kInProcess, RingKind::kCheckedInProcess),
                                       {RingKind::kGloo, RingKind::kCheckedGloo}}) {
    auto plain_ring = testing::MakeCommunicatorRing(plain, 2);
    auto checked_ring = testing::MakeCommunicatorRing(checked, 2);
    if (!plain_ring.ok() || !checked_ring.ok()) std::exit(1);
    int64_t next = 0;
    for (const int64_t bytes : sizes) {
      const int64_t steps = std::clamp<int64_t>((int64_t{256} << 20) / bytes, 4, 200);
      double best = 1e300, best_checked = 1e300;
      for (int round = 0; round < rounds; ++round) {
        best = std::min(best, StepSeconds(*plain_ring, bytes, next, steps));
        best_checked = std::min(best_checked, StepSeconds(*checked_ring, bytes, next, steps));
        next += steps;
      }
      table.push_back({testing::TransportName(plain), absl::StrCat(bytes >> 10, " KiB"),
                       Number(best * 1e3, 3), Number(static_cast<double>(bytes) / best / 1e9, 2),
                       Number(best_checked * 1e3, 3),
                       absl::StrCat(Number(100 * (1 - best / best_checked), 0), " %")});
    }
  }
  PrintTable(table);
}

}  // namespace
}  // namespace hilbert_ring::bench

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string_view(argv[1]) == "--quick";
  constexpr int64_t kMiB = int64_t{1} << 20;
  hilbert_ring::bench::Run(quick ? 1 : 5,
                           quick ? std::vector<int64_t>{1 << 16}
                                 : std::vector<int64_t>{1 << 16, kMiB, 16 * kMiB, 64 * kMiB});
  return 0;
}
