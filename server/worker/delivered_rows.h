// What RunOpen says of outputs that the client has of an earlier execution.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/shard/output_rows.h"

namespace hilbert_ring::server {

// tokens: of the job. INVALID_ARGUMENT for a tensor that is no output, and for slots that a job of
// so many tokens does not have or that are named twice.
absl::StatusOr<Delivered> DeliveredOf(const v1::RunOpen& open, int64_t tokens);

}  // namespace hilbert_ring::server
