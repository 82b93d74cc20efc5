#include "wire/job_id.h"

#include <cstdint>
#include <random>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::wire {

std::string DrawJobId() {
  std::random_device device;
  const uint64_t bits = (uint64_t{device()} << 32) | device();
  return absl::StrCat("job-", absl::Hex(bits, absl::kZeroPad16));
}

}  // namespace hilbert_ring::wire
