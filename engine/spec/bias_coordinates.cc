#include "engine/spec/bias_coordinates.h"

#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "engine/spec/field_error.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

absl::Status CheckBiasCoordinates(std::span<const float> values, int axes, int64_t first_row) {
  for (int64_t i = 0; i < std::ssize(values); ++i) {
    if (!(std::abs(values[i]) > kMostBiasCoordinate)) continue;
    return WithField(absl::OutOfRangeError(
                         absl::StrCat("bias_coords[", first_row + i / axes, "][", i % axes, "] is ",
                                      values[i], ", must be NaN or at most 2^60 in magnitude")),
                     "bias_coords");
  }
  return absl::OkStatus();
}

}  // namespace hilbert_ring
