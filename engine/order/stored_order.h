// Orders that are stored whole, in both directions: 8 bytes a token (16 for more than 2^32 tokens).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/order/permutation.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// Bytes that a stored order of `tokens` tokens takes.
int64_t StoredOrderBytes(int64_t tokens);

// A copy of an order of `tokens` tokens.
std::unique_ptr<const Permutation> StoreOrder(const Permutation& order, int64_t tokens);

// Orders each sequence of a job by the keys of its coordinates, as one run. coords: [tokens, axes]
// row-major, of the sequences together. Tokens of equal key keep their order. While it sorts it
// holds another 32 bytes for every token of the longest sequence. OUT_OF_RANGE: a coordinate that
// is negative or not below 2^32 (2-D) or 2^21 (3-D).
absl::StatusOr<std::unique_ptr<const Permutation>> StoreCoordinateOrder(
    Curve curve, int axes, std::span<const Sequence> sequences, std::span<const int64_t> coords);

}  // namespace hilbert_ring
