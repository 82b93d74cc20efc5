// Mounts of a test's own: nobody else sees them, and they go with its processes, however these end.
#pragma once

#include "absl/status/status.h"

namespace hilbert_ring::testing {

// From here on what this thread mounts is seen by it alone, and by the threads and processes that
// it starts from now on. Again: nothing happens. FAILED_PRECONDITION where this process may not.
absl::Status EnterOwnMounts();

}  // namespace hilbert_ring::testing
