// The GPU's kernels, emulated on the host.
#include "tests/unit/device/devices_under_test.h"

namespace hilbert_ring {

const bool kEmulated = true;

std::vector<std::string> DevicesUnderTest() {
  return {"cuda/native", "cuda/native-sm90", "cuda/native-sm90-pipelined"};
}

}  // namespace hilbert_ring
