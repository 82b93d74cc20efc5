// Preparation for a process's first channel of gRPC.
#pragma once

namespace hilbert_ring::wire {

// Makes Abseil measure the processor's clock now, which takes 3 ms once in a process. gRPC 1.51
// reads connect's errno only after other calls (see grpc#35064). Abseil otherwise measures at the
// first contended wait for a mutex, also between connect and that read. It looks for a file that
// few kernels have. A connection being made then failed with "No such file or directory".
void BeforeConnecting();

}  // namespace hilbert_ring::wire
