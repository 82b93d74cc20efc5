// Float32 multiply-adds in registers alone: the peak that kernels are compared with.
#pragma once

#include <cstdint>

namespace hilbert_ring::bench {

// Operations done in `steps` steps: two for each multiply-add of each lane.
int64_t MultiplyAdds(int64_t steps);

}  // namespace hilbert_ring::bench
