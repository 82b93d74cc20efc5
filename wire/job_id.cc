#include "wire/job_id.h"

#include "absl/strings/str_cat.h"
#include "engine/base/random_bits.h"

namespace hilbert_ring::wire {

std::string DrawJobId() { return absl::StrCat("job-", absl::Hex(DrawBits(), absl::kZeroPad16)); }

}  // namespace hilbert_ring::wire
