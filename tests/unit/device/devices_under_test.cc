// Every instruction set of the processor, and the GPU if the machine has it.
#include "tests/unit/device/devices_under_test.h"

#include "absl/strings/str_cat.h"
#include "engine/device/cpu/cpu_device.h"
#include "tests/support/test_depth.h"

namespace hilbert_ring {

const bool kEmulated = false;

std::vector<std::string> DevicesUnderTest() {
  std::vector<std::string> kernels;
  for (const std::string& name : RunnableCpuInstructions()) {
    kernels.push_back(absl::StrCat("cpu/", name));
  }
  for (const std::string& name : CudaKernels()) kernels.push_back(name);
  return KernelsAtDepth(kernels);
}

}  // namespace hilbert_ring
