#include <cstddef>
#include <cstdint>

#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hilbert_ring::fuzz::HILBERT_RING_FUZZ_FUNCTION({data, size});
  return 0;
}
