// A port of the loopback interface that was free when it was asked for.
#pragma once

namespace hilbert_ring {

int FreePort();

}  // namespace hilbert_ring
