// Every instruction set of the processor, and the GPU where there is one.
#include "tests/unit/device/devices_under_test.h"

#include "absl/strings/str_cat.h"
#include "engine/device/cpu/cpu_device.h"

namespace hilbert_ring {

std::vector<std::string> DevicesUnderTest() {
  std::vector<std::string> kernels;
  for (const std::string& name : RunnableCpuInstructions()) {
    kernels.push_back(absl::StrCat("cpu/", name));
  }
  if (!FindCudaDevice(0).ok()) return kernels;
  kernels.push_back("cuda/native");
  if (MakeDevice(OptionsFor("cuda/cudnn", 0)).ok()) kernels.push_back("cuda/cudnn");
  return kernels;
}

}  // namespace hilbert_ring
