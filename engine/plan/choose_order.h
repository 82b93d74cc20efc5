// `--curve auto`: which order a job's tokens get, and why. An order changes which tokens share a
// segment, and so the result: the choice depends on the spec alone, never on the workers.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

struct OrderChoice {
  std::optional<Curve> curve;  // none: tokens stay as they come
  std::string why;             // "..., since " and this
};

// The spec is valid and has an ordering, whose curve does not count. The order whose plan computes
// least; of those that cost the same on a grid the one whose segments are most compact. Errors as
// of MakePlan, which has `cancelled` too.
absl::StatusOr<OrderChoice> ChooseOrder(const JobSpec& spec,
                                        const std::function<bool()>& cancelled = nullptr);

}  // namespace hilbert_ring
