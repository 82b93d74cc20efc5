// Products of rows with weights, by cuBLASLt.
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

  // Puts the product on the stream (a cudaStream_t) of the current device. The library chooses an
  // algorithm once a shape. INTERNAL with the library's message.
  virtual absl::Status Start(const ProductTask& task, void* stream) = 0;
};

// Uses the thread's current device. FAILED_PRECONDITION: the library is missing or too old.
absl::StatusOr<std::unique_ptr<Products>> MakeProducts();

}  // namespace hilbert_ring::cuda
