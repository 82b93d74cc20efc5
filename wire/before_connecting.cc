#include "wire/before_connecting.h"

#include "absl/base/internal/sysinfo.h"

namespace hilbert_ring::wire {

// No public function of Abseil measures for certain.
void BeforeConnecting() { absl::base_internal::NominalCPUFrequency(); }

}  // namespace hilbert_ring::wire
