// RowMath on a GPU: our kernels, and products by a library. Private to engine/device/cuda.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "engine/device/cuda/products.h"
#include "engine/device/row_math.h"

namespace hilbert_ring::cuda {

// What the device does around work on its stream.
struct StreamWork {
  void* stream = nullptr;               // a cudaStream_t
  std::function<absl::Status()> begin;  // before it, on the thread that brings it
  std::function<absl::Status()> end;    // waits for it
};

std::unique_ptr<RowMath> MakeRowMath(std::unique_ptr<Products> products, StreamWork work);

}  // namespace hilbert_ring::cuda
