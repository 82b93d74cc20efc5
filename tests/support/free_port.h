// Returns a free port of the loopback interface outside the system's ephemeral range: no connection
// takes it before its use. A process never gets the same port twice.
#pragma once

namespace hilbert_ring {

int FreePort();  // 0 if all are taken

}  // namespace hilbert_ring
