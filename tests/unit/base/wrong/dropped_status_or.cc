#include "absl/status/statusor.h"

absl::StatusOr<int> Count();

void Run() {
#ifdef HILBERT_RING_WRONG
  Count();
#else
  Count().IgnoreError();
#endif
}
