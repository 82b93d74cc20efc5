// Before a process makes its first channel of gRPC.
#pragma once

namespace hilbert_ring::wire {

// gRPC 1.51 asks for connect's errno only after other calls (see grpc#35064). Where they have to
// wait for a mutex for which another thread waits too, Abseil measures how fast the processor's
// clock runs, once in the life of a process, and looks for a file that few kernels have: a
// connection that was under way then failed with "No such file or directory". This has Abseil
// measure now, which takes 3 ms; any call after the first takes nothing.
void BeforeConnecting();

}  // namespace hilbert_ring::wire
