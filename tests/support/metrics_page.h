#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hilbert_ring::testing {

// The value of "name{labels}", or the sum of all series of a name. NOT_FOUND without one.
absl::StatusOr<double> ReadSeries(absl::string_view page, absl::string_view series);

}  // namespace hilbert_ring::testing
