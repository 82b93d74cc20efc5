// One pass over rows that have come, to the places where they lie.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/rows/row_router.h"
#include "server/shard/row_set.h"

namespace hilbert_ring::server {

// Calls `visit` with the places of all `rows` of a tensor, in their order, at most `piece` rows at
// a time: each row is routed once, whatever the number of ranks, and no more than a piece is in
// memory. Ends with the first error.
absl::Status VisitPlaces(const RowRouter& router, v1::Tensor tensor, const RowSet& rows,
                         int64_t piece,
                         const std::function<absl::Status(const std::vector<RowRun>&)>& visit);

}  // namespace hilbert_ring::server
