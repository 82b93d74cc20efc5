// A port of the loopback interface that was free when it was asked for.
#pragma once

namespace hilbert_ring::client {

int FreePort();

}  // namespace hilbert_ring::client
