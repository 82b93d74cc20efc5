// Which of this machine's addresses a host name stands for.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace hilbert_ring {

// The numeric form of the first address of `host` that a socket of this machine can be bound to.
// INVALID_ARGUMENT when the name is unknown or its addresses are another machine's.
absl::StatusOr<std::string> LocalAddress(const std::string& host);

}  // namespace hilbert_ring
