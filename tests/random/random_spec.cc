#include "tests/random/random_spec.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

namespace hilbert_ring::testing {
namespace {

int64_t Uniform(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

bool Chance(std::mt19937_64& random, int percent) { return Uniform(random, 1, 100) <= percent; }

// At most `high`, often tiny.
int64_t Length(std::mt19937_64& random, int64_t high) {
  return Chance(random, 15) ? Uniform(random, 1, std::min<int64_t>(high, 4))
                            : Uniform(random, 1, high);
}

void AddSequences(JobSpec& spec, std::mt19937_64& random) {
  int64_t left = spec.tokens;
  while (left > 0 && spec.sequence_lengths.size() < 6) {
    spec.sequence_lengths.push_back(Length(random, left));
    left -= spec.sequence_lengths.back();
  }
  if (left > 0) spec.sequence_lengths.push_back(left);
}

void AddOrdering(JobSpec& spec, std::mt19937_64& random) {
  Ordering ordering;
  ordering.curve = Chance(random, 70) ? Curve::kHilbert : Curve::kMorton;
  ordering.scope = Chance(random, 60) ? OrderScope::kQkv : OrderScope::kKv;
  switch (Uniform(random, 0, 3)) {
    case 0:
      ordering.window = Length(random, spec.tokens + 5);
      break;
    case 1:
      ordering.coordinate_axes = static_cast<int>(Uniform(random, 2, 3));
      break;
    case 2: {
      spec.sequence_lengths.clear();
      ordering.grid = {Uniform(random, 1, 12), Uniform(random, 1, 12)};
      if (Chance(random, 40)) ordering.grid.push_back(Uniform(random, 1, 4));
      spec.tokens = 1;
      for (const int64_t side : ordering.grid) spec.tokens *= side;
      break;
    }
    default:
      break;
  }
  spec.ordering = ordering;
}

// A window takes what excludes it away.
void AddScores(JobSpec& spec, std::mt19937_64& random) {
  const auto quarters = [&](int64_t low, int64_t high) {
    return 0.25 * static_cast<double>(Uniform(random, low, high));
  };
  if (Chance(random, 15)) spec.softcap = quarters(1, 80);
  if (Chance(random, 15)) {
    for (int64_t head = 0; head < spec.heads; ++head) spec.sinks.push_back(quarters(-40, 40));
  }
  if (Chance(random, 15)) {
    spec.alibi.emplace();
    for (int64_t head = 0; head < spec.heads; ++head) {
      spec.alibi->slopes.push_back(std::ldexp(quarters(-1, 4), -static_cast<int>(head)));
    }
    if (Chance(random, 50)) spec.alibi->coordinate_axes = static_cast<int>(Uniform(random, 2, 3));
    spec.tail = Tail::kMask;
  }
  if (Chance(random, 20)) {
    const auto side = [&]() -> std::optional<int64_t> {
      if (Chance(random, 25)) return std::nullopt;
      return Length(random, spec.tokens + 5) - 1;
    };
    spec.window = Window{.left = side(), .right = side()};
    if (!HasWindow(spec)) return;
    spec.ordering.reset();
    spec.tail = Tail::kMask;
    for (Branch& branch : spec.branches) branch.dilation = 1;
  }
}

}  // namespace

JobSpec RandomSpec(std::mt19937_64& random, const RandomSpecOptions& options) {
  JobSpec spec;
  spec.tokens = Length(random, options.max_tokens);
  spec.kv_heads = Uniform(random, 1, std::max<int64_t>(1, options.max_heads / 2));
  spec.heads = spec.kv_heads * Uniform(random, 1, options.max_heads / spec.kv_heads);
  spec.head_dim = 8 * Uniform(random, 1, 3);
  spec.value_dim = 8 * Uniform(random, 1, 3);
  spec.mixing = Chance(random, 50) ? Mixing::kHeadGroups : Mixing::kLse;
  spec.causal = Chance(random, 50);
  spec.tail = Chance(random, 40) ? Tail::kZero : Tail::kMask;
  spec.average_groups = Chance(random, 50);
  if (Chance(random, 20)) spec.scale = 0.01 * static_cast<double>(Uniform(random, -50, 100));
  if (Chance(random, 30)) AddSequences(spec, random);
  if (Chance(random, 50)) AddOrdering(spec, random);
  const int64_t branches = Uniform(random, 1, 4);
  for (int64_t i = 0; i < branches; ++i) {
    Branch branch{.segment = Length(random, spec.tokens + 10), .dilation = Uniform(random, 1, 6)};
    if (Chance(random, 8)) branch.dilation = Uniform(random, 1, 2 * spec.tokens);
    if (Chance(random, 3)) branch = {.segment = int64_t{1} << 61, .dilation = int64_t{1} << 61};
    spec.branches.push_back(branch);
  }
  AddScores(spec, random);
  return spec;
}

void MakeRectangular(JobSpec& spec, std::mt19937_64& random) {
  std::vector<int64_t> keys = spec.sequence_lengths;
  if (keys.empty()) keys = {spec.tokens};
  const bool dense = Chance(random, 40);
  const bool has_coordinates = BiasAxes(spec) > 0;  // each query is at a key's position
  if (dense) {
    spec.branches = {{.segment = Chance(random, 50) ? spec.tokens : int64_t{1} << 40}};
    spec.ordering.reset();
    spec.align = Chance(random, 50) && !has_coordinates ? Align::kStart : Align::kEnd;
    if (!has_coordinates && Chance(random, 20)) keys[0] = 0;
  }
  std::vector<int64_t> queries;
  queries.reserve(keys.size());
  for (const int64_t length : keys) {
    queries.push_back(dense && !has_coordinates ? Uniform(random, 0, 2 * length + 3)
                                                : Uniform(random, 0, length));
  }
  if (std::accumulate(queries.begin(), queries.end(), int64_t{0}) == 0) queries[0] = 1;
  spec.tokens = std::accumulate(queries.begin(), queries.end(), int64_t{0});
  spec.key_tokens = std::accumulate(keys.begin(), keys.end(), int64_t{0});
  spec.sequence_lengths.clear();
  if (keys.size() == 1) return;
  spec.sequence_lengths = queries;
  spec.key_sequence_lengths = keys;
}

std::vector<int64_t> RandomCoords(const JobSpec& spec, std::mt19937_64& random) {
  std::vector<int64_t> coords;
  if (!spec.ordering || spec.ordering->coordinate_axes == 0) return coords;
  const int64_t bound = Chance(random, 20) ? (int64_t{1} << 21) - 1 : Uniform(random, 0, 40);
  for (int64_t i = 0; i < KeyTokens(spec) * spec.ordering->coordinate_axes; ++i) {
    coords.push_back(Uniform(random, 0, bound));
  }
  return coords;
}

std::vector<float> RandomBiasCoords(const JobSpec& spec, std::mt19937_64& random) {
  const int axes = BiasAxes(spec);
  std::vector<float> coordinates;
  if (axes == 0) return coordinates;
  std::uniform_real_distribution<float> near(0.0f, 30.0f);
  const float origin = Chance(random, 50) ? 0.0f : 0x1p18f;
  for (int64_t i = 0; i < KeyTokens(spec) * axes; ++i) {
    coordinates.push_back(Chance(random, 3) ? NAN : origin + near(random));
  }
  return coordinates;
}

std::vector<float> RandomValues(int64_t count, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  // Both 16-bit types hold eight significant bits and a coarse grid near zero exactly.
  for (float& value : values) value = std::round(normal(random) * 32.0f) / 32.0f;
  for (float& value : values) {
    if (std::abs(value) > 4.0f) value = std::round(value * 8.0f) / 8.0f;
  }
  return values;
}

}  // namespace hilbert_ring::testing
