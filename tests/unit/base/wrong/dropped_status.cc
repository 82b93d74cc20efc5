#include "absl/status/status.h"

absl::Status Check();

void Run() {
#ifdef HILBERT_RING_WRONG
  Check();
#else
  Check().IgnoreError();
#endif
}
