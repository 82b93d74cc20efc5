// The descriptors of this process.
#pragma once

#include "absl/functional/function_ref.h"

namespace hilbert_ring::server {

// Calls `look` with each that is open, as far as it is known: others open and close them meanwhile.
// Where there is no /proc, with none.
void ForEachDescriptor(absl::FunctionRef<void(int descriptor)> look);

}  // namespace hilbert_ring::server
