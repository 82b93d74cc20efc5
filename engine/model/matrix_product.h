// Products of blocks of rows with weights: to = from W^T + bias, by oneDNN, on the calling thread
// alone: each thread of a pool takes blocks of its own, so that what is done before and after a
// product finds its rows in the cache.
//
//   auto weights = PackedMatrix::Make(place, {.out = 768, .in = 3072, .operand = operand}, w, b);
//   auto product = RowProduct::Make(weights->shape(), 256);     // serves all weights of the shape
//   std::vector<std::byte> scratch(product->scratch_bytes());   // of each thread
//   product->Run(*weights, from, to, scratch.data());
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// How products take their numbers. Sums are float32 always.
enum class Operand {
  kFloat32,
  kBFloat16,
  // bfloat16's numbers in float32, where the processor has no products of bfloat16: the same result
  // but for the order of sums, at the speed of float32.
  kRoundedFloat32,
};

// That of a compute type on this machine; float16 has none.
Operand OperandOf(DataType compute);
DataType StorageOf(Operand operand);  // float32 or bfloat16

struct MatrixShape {
  int64_t out = 0, in = 0;
  Operand operand = Operand::kFloat32;
  bool operator==(const MatrixShape&) const = default;
};

// Of a matrix as it is packed, without its bias. INTERNAL where oneDNN fails.
absl::StatusOr<int64_t> PackedMatrixBytes(const MatrixShape& shape);

// Weights [out, in] in the layout that products want them in, and their bias. Immutable.
class PackedMatrix {
 public:
  // weights [out, in], bias [out]. place: memory that outlives it, PackedMatrixBytes, aligned
  // to 64. weights empty: they are there already, as a process of this machine has packed them.
  // INTERNAL where oneDNN fails.
  static absl::StatusOr<PackedMatrix> Make(std::span<std::byte> place, const MatrixShape& shape,
                                           std::span<const float> weights,
                                           std::span<const float> bias);

  PackedMatrix(PackedMatrix&&) noexcept;
  PackedMatrix& operator=(PackedMatrix&&) noexcept;
  ~PackedMatrix();

  const MatrixShape& shape() const;
  int64_t bytes() const;

 private:
  friend class RowProduct;
  struct Packed;
  explicit PackedMatrix(std::unique_ptr<Packed> packed);
  std::unique_ptr<Packed> packed_;
};

// Thread-safe: any number of threads may run it, each with scratch of its own.
class RowProduct {
 public:
  // Of `rows` rows at once, results of type `to`: float32 or bfloat16.
  static absl::StatusOr<RowProduct> Make(const MatrixShape& shape, int64_t rows, DataType to);

  RowProduct(RowProduct&&) noexcept;
  RowProduct& operator=(RowProduct&&) noexcept;
  ~RowProduct();

  int64_t scratch_bytes() const;

  // from: [rows, in] of StorageOf(shape.operand); to: [rows, out]. Both dense, and apart. INTERNAL
  // where oneDNN fails.
  absl::Status Run(const PackedMatrix& weights, const void* from, void* to,
                   std::byte* scratch) const;

 private:
  struct Kernel;
  explicit RowProduct(std::unique_ptr<Kernel> kernel);
  std::unique_ptr<Kernel> kernel_;
};

// What the layout of packed weights depends on beside the shape: the library's version and the
// machine's instructions. Letters and digits.
std::string PackingOfThisMachine();

// From here on products of this thread run on it alone. Called by a thread before its first one.
void KeepProductsOnThisThread();

}  // namespace hilbert_ring
