#include "tests/fuzz/input_spec.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace hilbert_ring::fuzz {
namespace {

void ReadOrdering(InputBytes& input, JobSpec& spec) {
  Ordering ordering;
  ordering.curve = input.Flag() ? Curve::kHilbert : Curve::kMorton;
  ordering.scope = input.Flag() ? OrderScope::kQkv : OrderScope::kKv;
  switch (input.Below(4)) {
    case 0:
      ordering.window = 1 + input.Below(32);
      break;
    case 1:
      ordering.coordinate_axes = 2 + input.Below(2);
      break;
    case 2:
      ordering.grid = {1 + input.Below(8), 1 + input.Below(8)};
      if (input.Flag()) ordering.grid.push_back(1 + input.Below(3));
      spec.sequence_lengths.clear();
      spec.tokens = 1;
      for (const int64_t side : ordering.grid) spec.tokens *= side;
      break;
    default:
      break;
  }
  spec.ordering = ordering;
}

void ReadSequences(InputBytes& input, JobSpec& spec) {
  int64_t left = spec.tokens;
  for (int count = input.Below(5); count > 0 && left > 1; --count) {
    const int64_t length = 1 + input.Below(static_cast<int>(std::min<int64_t>(left - 1, 255)));
    spec.sequence_lengths.push_back(length);
    left -= length;
  }
  if (!spec.sequence_lengths.empty()) spec.sequence_lengths.push_back(left);
}

// fields: a bit for each; 0 reads no byte.
void ReadScores(InputBytes& input, int fields, JobSpec& spec) {
  const auto of_heads = [&] {
    std::vector<double> values;
    for (int64_t head = 0; head < spec.heads; ++head) values.push_back(0.125 * input.Byte() - 16);
    return values;
  };
  if ((fields & 1) != 0) spec.softcap = 0.25 * (1 + input.Byte());
  if ((fields & 2) != 0) spec.sinks = of_heads();
  if ((fields & 4) != 0) {
    spec.alibi = Alibi{.slopes = of_heads()};
    if ((fields & 64) != 0) spec.alibi->coordinate_axes = 2 + (fields >> 4 & 1);
    spec.tail = Tail::kMask;
  }
  if ((fields & 8) != 0) {
    spec.window.emplace();
    if ((fields & 16) != 0) spec.window->left = input.Byte();
    if ((fields & 32) != 0) spec.window->right = input.Byte();
    if (!HasWindow(spec)) return;
    for (Branch& branch : spec.branches) branch.dilation = 1;
    spec.tail = Tail::kMask;
    spec.ordering.reset();
  }
}

// The tokens so far become the keys.
void ReadRectangle(InputBytes& input, JobSpec& spec) {
  std::vector<int64_t> keys = spec.sequence_lengths;
  if (keys.empty()) keys = {spec.tokens};
  const uint8_t flags = input.Byte();
  const bool dense = (flags & 1) != 0;  // with any queries
  if (dense) {
    spec.align = (flags & 2) != 0 && BiasAxes(spec) == 0 ? Align::kStart : Align::kEnd;
    if ((flags & 4) != 0) keys.front() = 0;
    spec.branches = {{.segment = 256}};
    spec.ordering.reset();
  }
  spec.sequence_lengths.clear();
  for (const int64_t length : keys) {
    const auto most = static_cast<int>(dense && BiasAxes(spec) == 0 ? 2 * length + 2 : length);
    spec.sequence_lengths.push_back(input.Below(most + 1));
  }
  const auto sum = [](const std::vector<int64_t>& lengths) {
    return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  };
  if (sum(spec.sequence_lengths) == 0) spec.sequence_lengths.front() = 1;
  spec.tokens = sum(spec.sequence_lengths);
  spec.key_tokens = sum(keys);
  spec.key_sequence_lengths = std::move(keys);
}

void ReadOdd(InputBytes& input, JobSpec& spec) {
  for (int changes = 1 + input.Below(6); changes > 0; --changes) {
    const int place = input.Below(20);
    if (place < 5) {
      *std::array{&spec.tokens, &spec.heads, &spec.kv_heads, &spec.head_dim,
                  &spec.value_dim}[place] = input.Integer();
    } else if (place < 7) {
      Branch& branch = spec.branches[input.Below(static_cast<int>(spec.branches.size()))];
      (place == 5 ? branch.segment : branch.dilation) = input.Integer();
    } else if (place == 7) {
      spec.scale = static_cast<double>(input.Integer());
    } else if (place == 8) {
      spec.sequence_lengths.push_back(input.Integer());
    } else if (place < 12) {
      if (!spec.ordering) continue;
      const int64_t number = input.Integer();
      if (place == 9) spec.ordering->window = number;
      if (place == 10) spec.ordering->coordinate_axes = static_cast<int>(number);
      if (place == 11) spec.ordering->grid.push_back(number);
    } else if (place == 13) {
      spec.window = Window{.left = input.Integer(), .right = input.Integer()};
    } else if (place == 14) {
      spec.softcap = static_cast<double>(input.Integer());
    } else if (place == 15) {
      spec.sinks.push_back(static_cast<double>(input.Integer()));
    } else if (place == 16) {
      spec.key_tokens = input.Integer();
    } else if (place == 17) {
      spec.key_sequence_lengths.push_back(input.Integer());
    } else if (place == 18) {
      spec.align = Align::kStart;
    } else {
      // large, and valid
      const int64_t rows = (int64_t{1} << (input.Byte() % 41)) - input.Below(8);
      spec.key_tokens.reset();
      place == 19 ? spec.key_tokens.emplace(rows) : spec.tokens = rows;
      spec.sequence_lengths.clear();
      spec.key_sequence_lengths.clear();
      spec.ordering.reset();
    }
  }
}

}  // namespace

JobSpec InputSpec(InputBytes& input, int max_tokens) {
  JobSpec spec;
  const uint8_t flags = input.Byte();
  spec.tokens = 1 + input.Below(max_tokens);
  spec.kv_heads = 1 + input.Below(3);
  spec.heads = spec.kv_heads * (1 + input.Below(3));
  const uint8_t dim = input.Byte();
  spec.head_dim = 8 * (1 + dim % 3);
  spec.value_dim = 8 * (1 + input.Below(3));
  const uint8_t type = input.Byte();
  spec.dtype = static_cast<DataType>(type % 3);
  spec.mixing = (flags & 1) != 0 ? Mixing::kHeadGroups : Mixing::kLse;
  spec.causal = (flags & 2) != 0;
  spec.tail = (flags & 4) != 0 ? Tail::kMask : Tail::kZero;
  spec.average_groups = (flags & 8) != 0;
  if ((flags & 16) != 0) spec.scale = 0.125 * (input.Byte() - 128);
  for (int count = 1 + input.Below(4); count > 0; --count) {
    spec.branches.push_back({.segment = 1 + input.Byte(), .dilation = 1 + input.Below(12)});
  }
  if ((flags & 32) != 0) ReadSequences(input, spec);
  if ((flags & 64) != 0) ReadOrdering(input, spec);
  ReadScores(input, type / 3, spec);
  if (dim / 3 % 2 == 1) ReadRectangle(input, spec);
  if ((flags & 128) != 0) ReadOdd(input, spec);
  if (spec.key_tokens == spec.tokens) spec.key_tokens.reset();  // as the codec does
  return spec;
}

}  // namespace hilbert_ring::fuzz
