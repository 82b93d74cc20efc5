// `--curve auto`: chooses the order of a job's tokens. The order changes the result (which tokens
// share a segment), so it depends on the spec and never on workers.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

struct OrderChoice {
  std::optional<Curve> curve;  // empty: tokens keep their order
  std::string why;             // completes "..., since "
};

// The spec is valid and has an ordering, whose curve is ignored. Chooses the least flops, and on a
// grid the most compact segments among equals. Errors: MakePlan.
absl::StatusOr<OrderChoice> ChooseOrder(const JobSpec& spec,
                                        const std::function<bool()>& cancelled = nullptr);

}  // namespace hilbert_ring
