// RowMath on a GPU: native kernels, and products by a library.
//
//   auto row_math = MakeRowMath(std::move(products), {.stream = stream, .begin = ..., .end = ...});
//   RETURN_IF_ERROR(row_math->Run(steps));        // begin(), the steps on the stream, end()
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "engine/device/cuda/products.h"
#include "engine/device/row_math.h"

namespace hilbert_ring::cuda {

struct StreamWork {
  void* stream = nullptr;               // a cudaStream_t
  std::function<absl::Status()> begin;  // before the work, on the thread that starts it
  std::function<absl::Status()> end;    // waits for the work, after an error too
};

std::unique_ptr<RowMath> MakeRowMath(std::unique_ptr<Products> products, StreamWork work);

}  // namespace hilbert_ring::cuda
