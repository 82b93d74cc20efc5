// Orders stored in both directions: 8 bytes a token (16 for more than 2^32 tokens).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/order/permutation.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

int64_t StoredOrderBytes(int64_t tokens);

std::unique_ptr<const Permutation> StoreOrder(const Permutation& order, int64_t tokens);

// Orders each sequence by the keys of its coords [tokens, axes]; equal keys keep their order.
// Sorting takes another 32 bytes for each token of the longest sequence. Errors: Permutation::Make.
absl::StatusOr<std::unique_ptr<const Permutation>> StoreCoordinateOrder(
    Curve curve, int axes, std::span<const Sequence> sequences, std::span<const int64_t> coords);

}  // namespace hilbert_ring
