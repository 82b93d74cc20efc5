// Which field of a spec a status is about, beside its message, for programs that show or mend it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace hilbert_ring {

// As messages name it, "segments[1]"; and what its value may be at most or must be at least, where
// the message says such a limit.
struct FieldOfError {
  std::string field;
  std::optional<int64_t> limit;
  bool operator==(const FieldOfError&) const = default;
};

// The same status, which must not be OK, with the field that it is about.
absl::Status WithField(absl::Status status, absl::string_view field,
                       std::optional<int64_t> limit = std::nullopt);

// Nothing for a status that names none.
std::optional<FieldOfError> FieldOf(const absl::Status& status);

}  // namespace hilbert_ring
