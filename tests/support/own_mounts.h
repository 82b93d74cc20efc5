// Mounts that only the test's processes see, and that end with them.
#pragma once

#include "absl/status/status.h"

namespace hilbert_ring::testing {

// Later mounts of this thread are visible to it and to the threads and processes that it starts.
// FAILED_PRECONDITION without the rights.
absl::Status EnterOwnMounts();

}  // namespace hilbert_ring::testing
