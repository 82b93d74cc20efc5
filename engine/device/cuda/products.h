// Products of rows with weights, by cuBLASLt. Private to engine/device/cuda.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/row_math.h"

namespace hilbert_ring::cuda {

// Used by one thread at a time.
class Products {
 public:
  virtual ~Products() = default;

  // Puts the product on the stream (a cudaStream_t) of the current device. The library is asked for
  // an algorithm once for each shape. INTERNAL with the library's words.
  virtual absl::Status Start(const ProductTask& task, void* stream) = 0;
};

// Of the calling thread's current device. FAILED_PRECONDITION, saying why: the library is not built
// in, not on this machine, or too old; else its error.
absl::StatusOr<std::unique_ptr<Products>> MakeProducts();

}  // namespace hilbert_ring::cuda
