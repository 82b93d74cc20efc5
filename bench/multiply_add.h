// Float32 multiply-adds in registers: the peak that kernels are compared with.
#pragma once

#include <cstdint>

namespace hilbert_ring::bench {

// The operations of `steps` steps: two for each multiply-add of a lane.
int64_t MultiplyAdds(int64_t steps);

}  // namespace hilbert_ring::bench
