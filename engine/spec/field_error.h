// Attaches to a status the field of a spec that it concerns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace hilbert_ring {

// The field as messages write it, "segments[1]", and the limit that the message gives.
struct FieldOfError {
  std::string field;
  std::optional<int64_t> limit;
  bool operator==(const FieldOfError&) const = default;
};

// Adds the field to a status, which is not OK.
absl::Status WithField(absl::Status status, absl::string_view field,
                       std::optional<int64_t> limit = std::nullopt);

// Empty for a status without a field.
std::optional<FieldOfError> FieldOf(const absl::Status& status);

}  // namespace hilbert_ring
