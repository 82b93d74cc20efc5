// What orders along space-filling curves cost and what they change, as Markdown tables, which
// ./dev bench records.
//
//   order_bench             everything, best of 5 rounds
//   order_bench keys        one part: keys, orders, placing, segments, windows, attention
//   order_bench --quick     a smoke test: small, one round
//
// Orders: `row-major` leaves the grid's tokens where they are, `Hilbert` and `Morton` follow the
// curve, `random` is the worst that an order could do.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/measure.h"
#include "bench/one_shard_job.h"
#include "engine/order/curve.h"
#include "engine/order/order_cache.h"
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

constexpr int64_t kLine = 64;
constexpr int64_t kPage = 4096;

template <typename Work>
double BestSeconds(int rounds, Work work) {
  double best = 1e300;
  for (int round = 0; round < rounds; ++round) best = std::min(best, SecondsOf(work));
  return best;
}

const char* Name(Curve curve) { return curve == Curve::kHilbert ? "Hilbert" : "Morton"; }

void Keys(const Options& options) {
  std::printf("\n### Keys on one core, millions a second\n\n");
  Table table = {{"curve", "axes", "bits an axis", "random cells", "cells of a grid"}};
  constexpr int64_t kCells = 1 << 16;
  for (const int axes : {2, 3}) {
    const int bits = 20;
    std::mt19937_64 random(2);
    std::vector<int64_t> cells[2];
    for (auto& coords : cells) coords.resize(kCells * axes);
    for (int64_t& value : cells[0]) value = static_cast<int64_t>(random() >> (64 - bits));
    for (int64_t i = 0; i < kCells; ++i) {
      for (int axis = 0; axis < axes; ++axis) {
        const int levels = 16 / axes + 1;
        cells[1][i * axes + axis] = i >> (levels * axis) & ((1 << levels) - 1);
      }
    }
    std::vector<uint64_t> keys(kCells);
    for (const Curve curve : {Curve::kHilbert, Curve::kMorton}) {
      std::vector<std::string> row = {Name(curve), absl::StrCat(axes), absl::StrCat(bits)};
      for (const auto& coords : cells) {
        const double seconds =
            BestSeconds(100 * options.rounds, [&] { CurveKeys(curve, axes, bits, coords, keys); });
        row.push_back(Number(kCells / seconds * 1e-6, 1));
      }
      table.push_back(row);
    }
  }
  PrintTable(table);
}

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

void Orders(const Options& options) {
  std::printf("\n### An order of a million tokens on one core\n\n");
  Table table = {{"order", "made, ms", "from the cache, us", "all slots read, ms", "stored MiB"}};
  const auto add = [&](const std::string& name, const JobSpec& spec,
                       const std::vector<int64_t>& coords, int64_t max_stored) {
    std::shared_ptr<const Permutation> order;
    const double made = BestSeconds(
        options.rounds, [&] { order = Permutation::Make(spec, coords, max_stored).value(); });
    OrderCache cache(int64_t{1} << 30);
    std::string cached = "never";
    if (coords.empty() && max_stored > 0) {
      (void)cache.Get(spec, coords).value();
      cached = Number(
          1e6 * BestSeconds(100 * options.rounds, [&] { (void)cache.Get(spec, coords).value(); }),
          2);
    }
    std::vector<int64_t> tokens(spec.tokens);
    const double read = BestSeconds(options.rounds, [&] { order->Tokens(0, tokens); });
    table.push_back({name, Number(1e3 * made, 2), cached, Number(1e3 * read, 2),
                     Number(static_cast<double>(order->resident_bytes()) / (1 << 20), 1)});
  };
  const int64_t stored = Permutation::kDefaultMaxStoredTokens;
  for (const Curve curve : {Curve::kHilbert, Curve::kMorton}) {
    JobSpec plane = GridSpec({1024, 1024}, 1);
    plane.ordering->curve = curve;
    JobSpec cube = GridSpec({64, 128, 128}, 1);
    cube.ordering->curve = curve;
    JobSpec points = plane;
    points.ordering->grid.clear();
    points.ordering->coordinate_axes = 2;
    std::mt19937_64 random(3);
    std::vector<int64_t> coords(2 * points.tokens);
    for (int64_t& value : coords) value = static_cast<int64_t>(random() >> 44);
    add(absl::StrCat(Name(curve), ", grid 1024 x 1024"), plane, {}, stored);
    add(absl::StrCat(Name(curve), ", grid 1024 x 1024, not stored"), plane, {}, 0);
    add(absl::StrCat(Name(curve), ", grid 64 x 128 x 128"), cube, {}, stored);
    add(absl::StrCat(Name(curve), ", coordinates in 2-D"), points, coords, stored);
  }
  PrintTable(table);
}

// The tokens of all slots of a square grid.
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

// Rows put at their slots as they arrive, in the order of the tokens.
void Placing(const Options& options) {
  std::printf("\n### Placing rows at their slots on one core, GB/s of payload\n\n");
  Table table = {{"grid", "order", "rows of 128 B", "rows of 1 KiB"}};
  for (const int64_t side : Sides(options)) {
    for (const NamedOrder& order : OrdersOfSquare(side)) {
      const int64_t tokens = side * side;
      std::vector<int64_t> slot_of(tokens);
      for (int64_t slot = 0; slot < tokens; ++slot) slot_of[order.token_of[slot]] = slot;
      std::vector<std::string> row = {absl::StrCat(side, " x ", side), order.name};
      for (const int64_t bytes : {128, 1024}) {
        std::vector<char> from(tokens * bytes, 1), to(tokens * bytes, 2);
        const double seconds = BestSeconds(options.rounds, [&] {
          for (int64_t token = 0; token < tokens; ++token) {
            std::memcpy(&to[slot_of[token] * bytes], &from[token * bytes], bytes);
          }
        });
        row.push_back(Number(static_cast<double>(tokens * bytes) / seconds * 1e-9, 2));
      }
      table.push_back(row);
    }
  }
  PrintTable(table);
}

struct Touched {
  std::unordered_set<int64_t> lines, pages;
  void Add(int64_t row, int64_t bytes) {
    for (int64_t at = row * bytes; at < (row + 1) * bytes; at += kLine) lines.insert(at / kLine);
    for (int64_t at = row * bytes; at < (row + 1) * bytes; at += kPage) pages.insert(at / kPage);
    pages.insert(((row + 1) * bytes - 1) / kPage);
  }
};

// What a reader without slots would touch: the rows of a segment where the tokens lie, row-major.
// The engine itself never does, since its rows lie at their slots: that is the last column.
void SegmentsInTokenLayout(const Options& options) {
  constexpr int64_t kSegment = 2048;
  constexpr int64_t kSegments = 64;
  constexpr int64_t kBytes = 256;  // 64 floats
  std::printf(
      "\n### A segment of %lld rows of %lld bytes, gathered from the row-major layout\n\n"
      "Lines and pages a segment, mean of up to %lld segments; the time is that of copying all "
      "rows "
      "of all\nsegments together.\n\n",
      static_cast<long long>(kSegment), static_cast<long long>(kBytes),
      static_cast<long long>(kSegments));
  Table table = {{"grid", "order", "dilation", "cache lines", "pages", "gathered, GB/s",
                  "lines at slots", "pages at slots"}};
  for (const int64_t side : Sides(options)) {
    const int64_t tokens = side * side;
    const std::vector<char> rows(tokens * kBytes, 1);
    std::vector<char> packed(kSegment * kBytes);
    for (const int64_t dilation : {1, 4}) {
      for (const NamedOrder& order : OrdersOfSquare(side)) {
        const int64_t slots = kSegment * dilation;  // so that equally many rows are selected
        const int64_t segments = std::min(kSegments, tokens / slots);
        double lines = 0, pages = 0, slot_lines = 0, slot_pages = 0;
        for (int64_t segment = 0; segment < segments; ++segment) {
          Touched gathered, placed;
          for (int64_t i = 0; i < kSegment; ++i) {
            const int64_t slot = segment * slots + i * dilation;
            gathered.Add(order.token_of[slot], kBytes);
            placed.Add(slot, kBytes);
          }
          lines += static_cast<double>(gathered.lines.size()) / segments;
          pages += static_cast<double>(gathered.pages.size()) / segments;
          slot_lines += static_cast<double>(placed.lines.size()) / segments;
          slot_pages += static_cast<double>(placed.pages.size()) / segments;
        }
        const double seconds = BestSeconds(options.rounds, [&] {
          for (int64_t segment = 0; segment < tokens / slots; ++segment) {
            for (int64_t i = 0; i < kSegment; ++i) {
              const int64_t token = order.token_of[segment * slots + i * dilation];
              std::memcpy(&packed[i * kBytes], &rows[token * kBytes], kBytes);
            }
          }
        });
        const double bytes = static_cast<double>(tokens / slots * kSegment * kBytes);
        table.push_back({absl::StrCat(side, " x ", side), order.name, absl::StrCat(dilation),
                         Number(lines, 0), Number(pages, 0), Number(bytes / seconds * 1e-9, 2),
                         Number(slot_lines, 0), Number(slot_pages, 0)});
      }
    }
  }
  PrintTable(table);
}

// The work of a spatial pattern: all tokens of a square window anywhere on the grid, read from
// where the order put them; and how much of the window one segment of slots holds.
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
  Table table = {{"grid", "order", "runs of slots", "cache lines", "pages", "us a window",
                  "% in the centre's segment"}};
  for (const int64_t side : Sides(options)) {
    const int64_t tokens = side * side;
    std::vector<char> rows(tokens * kBytes, 1), packed(kWindow * kWindow * kBytes);
    for (const NamedOrder& order : OrdersOfSquare(side)) {
      std::vector<int64_t> slot_of(tokens);
      for (int64_t slot = 0; slot < tokens; ++slot) slot_of[order.token_of[slot]] = slot;
      std::mt19937_64 random(5);
      double runs = 0, lines = 0, pages = 0, together = 0;
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
        Touched touched;
        for (const int64_t slot : slots) {
          touched.Add(slot, kBytes);
          if (slot / kSegment == segment) together += 1.0 / static_cast<double>(count);
        }
        std::sort(slots.begin(), slots.end());
        for (size_t i = 0; i < slots.size(); ++i) {
          if (i == 0 || slots[i] != slots[i - 1] + 1) runs += 1.0 / static_cast<double>(count);
        }
        lines += static_cast<double>(touched.lines.size()) / static_cast<double>(count);
        pages += static_cast<double>(touched.pages.size()) / static_cast<double>(count);
        windows.push_back(std::move(slots));
      }
      const double seconds = BestSeconds(options.rounds, [&] {
        for (const auto& slots : windows) {
          for (size_t i = 0; i < slots.size(); ++i) {
            std::memcpy(&packed[i * kBytes], &rows[slots[i] * kBytes], kBytes);
          }
        }
      });
      table.push_back({absl::StrCat(side, " x ", side), order.name, Number(runs, 1),
                       Number(lines, 0), Number(pages, 0),
                       Number(1e6 * seconds / static_cast<double>(count), 1),
                       Number(100 * together / (kWindow * kWindow), 1)});
    }
  }
  PrintTable(table);
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
      runs.push_back({name, std::make_unique<OneShardJob>(spec, *device)});
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
      {"keys", Keys},       {"orders", Orders},
      {"placing", Placing}, {"segments", SegmentsInTokenLayout},
      {"windows", Windows}, {"attention", Attention}};
  for (const auto& [name, measure] : parts) {
    if (options.part.empty() || options.part == name) measure(options);
  }
  return 0;
}
