// A port of the loopback interface that was free when it was asked for. Of those that the
// system gives to nobody who asks for any, so that no other program's connection takes it until it
// is used; a process is told none twice.
#pragma once

namespace hilbert_ring {

int FreePort();  // 0: none was found

}  // namespace hilbert_ring
