// Costs and effects of orders along space-filling curves, as Markdown tables, which ./dev bench
// records.
//
//   order_bench             everything, best of 5 rounds
//   order_bench placing     one part: placing, windows, attention
//   order_bench --quick     a smoke test: small, one round
//
// Orders: `row-major` keeps the grid's tokens, `Hilbert` and `Morton` follow the curve, `random` is
// the worst case.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/measure.h"
#include "bench/one_shard_job.h"
#include "engine/order/curve.h"
#include "engine/order/permutation.h"
#include "engine/plan/pattern.h"
#include "tests/random/random_spec.h"

namespace hilbert_ring::bench {
namespace {

using Table = std::vector<std::vector<std::string>>;

struct Options {
  int rounds = 5;
  bool quick = false;
  std::string part;
};

constexpr int64_t kPage = 4096;

template <typename Work>
double BestSeconds(int rounds, Work work) {
  double best = 1e300;
  for (int round = 0; round < rounds; ++round) best = std::min(best, SecondsOf(work));
  return best;
}

const char* Name(Curve curve) { return curve == Curve::kHilbert ? "Hilbert" : "Morton"; }

JobSpec GridSpec(std::vector<int64_t> grid, int64_t heads) {
  JobSpec spec;
  spec.tokens = 1;
  for (const int64_t side : grid) spec.tokens *= side;
  spec.heads = spec.kv_heads = heads;
  spec.head_dim = spec.value_dim = 64;
  spec.branches = {{2048, 1}};
  spec.ordering = Ordering{.grid = std::move(grid)};
  return spec;
}

struct NamedOrder {
  std::string name;
  std::vector<int64_t> token_of;
};

std::vector<NamedOrder> OrdersOfSquare(int64_t side) {
  std::vector<NamedOrder> orders;
  std::vector<int64_t> tokens(side * side);
  std::iota(tokens.begin(), tokens.end(), 0);
  orders.push_back({"row-major", tokens});
  for (const Curve curve : {Curve::kHilbert, Curve::kMorton}) {
    JobSpec spec = GridSpec({side, side}, 1);
    spec.ordering->curve = curve;
    Permutation::Make(spec, {}).value()->Tokens(0, tokens);
    orders.push_back({Name(curve), tokens});
  }
  std::iota(tokens.begin(), tokens.end(), 0);
  std::shuffle(tokens.begin(), tokens.end(), std::mt19937_64(4));
  orders.push_back({"random", tokens});
  return orders;
}

std::vector<int64_t> Sides(const Options& options) {
  return options.quick ? std::vector<int64_t>{128} : std::vector<int64_t>{256, 512, 1024};
}

void Placing(const Options& options) {
  std::printf("\n### Placing rows at their slots on one core, GB/s of payload\n\n");
  Table table = {{"grid", "order", "rows of 128 B"}};
  for (const int64_t side : Sides(options)) {
    for (const NamedOrder& order : OrdersOfSquare(side)) {
      const int64_t tokens = side * side;
      std::vector<int64_t> slot_of(tokens);
      for (int64_t slot = 0; slot < tokens; ++slot) slot_of[order.token_of[slot]] = slot;
      constexpr int64_t kBytes = 128;
      std::vector<char> from(tokens * kBytes, 1), to(tokens * kBytes, 2);
      const double seconds = BestSeconds(options.rounds, [&] {
        for (int64_t token = 0; token < tokens; ++token) {
          std::memcpy(&to[slot_of[token] * kBytes], &from[token * kBytes], kBytes);
        }
      });
      table.push_back({absl::StrCat(side, " x ", side), order.name,
                       Number(static_cast<double>(tokens * kBytes) / seconds * 1e-9, 2)});
    }
  }
  PrintTable(table);
}

// Reads all tokens of square windows anywhere on the grid from their slots. Also measures which
// share of a window lies in one segment of slots.
void Windows(const Options& options) {
  constexpr int64_t kWindow = 33;
  constexpr int64_t kSegment = 2048;
  constexpr int64_t kBytes = 256;
  const int64_t count = options.quick ? 4 : 1000;
  std::printf(
      "\n### Square windows of %lld x %lld tokens of %lld bytes, read from the slots\n\n"
      "Mean of %lld windows at random places. The last column is what attention sees: of the "
      "window, the part\nthat lies in the same segment of %lld slots as its centre.\n\n",
      static_cast<long long>(kWindow), static_cast<long long>(kWindow),
      static_cast<long long>(kBytes), static_cast<long long>(count),
      static_cast<long long>(kSegment));
  Table table = {{"grid", "order", "pages", "us a window", "% in the centre's segment"}};
  for (const int64_t side : Sides(options)) {
    const int64_t tokens = side * side;
    std::vector<char> rows(tokens * kBytes, 1), packed(kWindow * kWindow * kBytes);
    for (const NamedOrder& order : OrdersOfSquare(side)) {
      std::vector<int64_t> slot_of(tokens);
      for (int64_t slot = 0; slot < tokens; ++slot) slot_of[order.token_of[slot]] = slot;
      std::mt19937_64 random(5);
      double pages = 0, together = 0;
      std::vector<std::vector<int64_t>> windows;
      for (int64_t w = 0; w < count; ++w) {
        const auto range = static_cast<uint64_t>(side - kWindow + 1);
        const auto x = static_cast<int64_t>(random() % range);
        const auto y = static_cast<int64_t>(random() % range);
        std::vector<int64_t> slots;
        for (int64_t i = 0; i < kWindow * kWindow; ++i) {
          slots.push_back(slot_of[(y + i / kWindow) * side + x + i % kWindow]);
        }
        const int64_t segment = slots[slots.size() / 2] / kSegment;
        std::unordered_set<int64_t> touched;
        for (const int64_t slot : slots) {
          touched.insert(slot * kBytes / kPage);  // a row lies within a page
          if (slot / kSegment == segment) together += 1.0 / static_cast<double>(count);
        }
        std::sort(slots.begin(), slots.end());
        pages += static_cast<double>(touched.size()) / static_cast<double>(count);
        windows.push_back(std::move(slots));
      }
      const double seconds = BestSeconds(options.rounds, [&] {
        for (const auto& slots : windows) {
          for (size_t i = 0; i < slots.size(); ++i) {
            std::memcpy(&packed[i * kBytes], &rows[slots[i] * kBytes], kBytes);
          }
        }
      });
      table.push_back({absl::StrCat(side, " x ", side), order.name, Number(pages, 0),
                       Number(1e6 * seconds / static_cast<double>(count), 1),
                       Number(100 * together / (kWindow * kWindow), 1)});
    }
  }
  PrintTable(table);
}

std::unique_ptr<OneShardJob> RandomJob(const JobSpec& spec, Device& device) {
  auto job = std::make_unique<OneShardJob>(spec, device);
  std::mt19937_64 random(6);
  for (const TensorKind kind : {TensorKind::kQ, TensorKind::kK, TensorKind::kV}) {
    const std::vector<float> rows =
        testing::RandomValues(spec.tokens * spec.heads * spec.head_dim, random);
    job->Place(kind, std::as_bytes(std::span(rows)));
  }
  return job;
}

void Attention(const Options& options) {
  const int64_t side = options.quick ? 32 : 256;
  const int64_t heads = 3;
  std::printf(
      "\n### Attention of a grid of %lld x %lld tokens with and without an order\n\n"
      "%lld heads of dimension 64, float32, all cores. Placing is not counted. Flops are those of "
      "tiles that are\nnot wholly masked.\n\n",
      static_cast<long long>(side), static_cast<long long>(side), static_cast<long long>(heads));
  Table table = {{"pattern", "order", "seconds", "over row-major", "GFLOP", "GFLOP/s"}};
  auto device = MakeDevice({}).value();
  struct Pattern {
    std::string name;
    std::vector<Branch> branches;
    bool causal = false;
  };
  const Pattern patterns[] = {
      {"dense segments: [2048] / [1]", {{2048, 1}}},
      {"dilated: [8192] / [4]", {{8192, 4}}},
      {"[2048, 4096, 8192] / [1, 2, 4]", {{2048, 1}, {4096, 2}, {8192, 4}}},
      {"causal: [2048] / [1]", {{2048, 1}}, true},
  };
  for (const Pattern& pattern : patterns) {
    struct Run {
      std::string name;
      std::unique_ptr<OneShardJob> job;
      double best = 1e300;
    };
    std::vector<Run> runs;
    const auto add = [&](const std::string& name, const std::optional<Ordering>& ordering) {
      JobSpec spec = GridSpec({side, side}, heads);
      spec.branches = pattern.branches;
      spec.causal = pattern.causal;
      spec.ordering = ordering;
      runs.push_back({name, RandomJob(spec, *device)});
    };
    add("row-major", std::nullopt);
    add("Hilbert", Ordering{.grid = {side, side}});
    add("Morton", Ordering{.curve = Curve::kMorton, .grid = {side, side}});
    add("Hilbert, keys and values alone", Ordering{.scope = OrderScope::kKv, .grid = {side, side}});
    for (int round = 0; round < options.rounds; ++round) {
      for (Run& run : runs) {
        run.best = std::min(run.best, SecondsOf([&] { run.job->Run(); }));
      }
    }
    for (const Run& run : runs) {
      table.push_back({pattern.name, run.name, Number(run.best, 3),
                       Number(run.best / runs[0].best, 3), Number(run.job->flops() * 1e-9, 1),
                       Number(run.job->flops() * 1e-9 / run.best, 1)});
    }
  }
  PrintTable(table);
}

}  // namespace
}  // namespace hilbert_ring::bench

int main(int argc, char** argv) {
  using namespace hilbert_ring::bench;
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      options.quick = true;
      options.rounds = 1;
    } else {
      options.part = argv[i];
    }
  }
  std::printf("\n%s\n", MachineLine().c_str());
  const std::pair<const char*, void (*)(const Options&)> parts[] = {
      {"placing", Placing}, {"windows", Windows}, {"attention", Attention}};
  for (const auto& [name, measure] : parts) {
    if (options.part.empty() || options.part == name) measure(options);
  }
  return 0;
}
