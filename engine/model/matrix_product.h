// Products to = from W^T + bias, by oneDNN, on the calling thread: each thread multiplies its own
// blocks, whose rows stay in its cache.
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

// Operand types of products. Sums are float32.
enum class Operand {
  kFloat32,
  kBFloat16,
  // bfloat16's numbers in float32 (without bfloat16 products). Only the order of sums differs.
  kRoundedFloat32,
};

// The operand of a compute type (not float16) on this machine.
Operand OperandOf(DataType compute);
DataType StorageOf(Operand operand);  // float32 or bfloat16

struct MatrixShape {
  int64_t out = 0, in = 0;
  Operand operand = Operand::kFloat32;
  bool operator==(const MatrixShape&) const = default;
};

// Bytes of a packed matrix without its bias. Errors: INTERNAL (oneDNN).
absl::StatusOr<int64_t> PackedMatrixBytes(const MatrixShape& shape);

// Weights [out, in] in the layout of the products, and their bias. Immutable.
class PackedMatrix {
 public:
  // weights [out, in], bias [out]; empty weights: `place` holds them packed. place:
  // PackedMatrixBytes, aligned to 64; outlives the matrix. Errors: INTERNAL (oneDNN).
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
  // Multiplies `rows` rows at once; results are of type `to`: float32 or bfloat16.
  static absl::StatusOr<RowProduct> Make(const MatrixShape& shape, int64_t rows, DataType to);

  RowProduct(RowProduct&&) noexcept;
  RowProduct& operator=(RowProduct&&) noexcept;
  ~RowProduct();

  int64_t scratch_bytes() const;

  // from: [rows, in] of StorageOf(operand); to: [rows, out], apart. Errors: INTERNAL (oneDNN).
  absl::Status Run(const PackedMatrix& weights, const void* from, void* to,
                   std::byte* scratch) const;

 private:
  struct Kernel;
  explicit RowProduct(std::unique_ptr<Kernel> kernel);
  std::unique_ptr<Kernel> kernel_;
};

// Identifies packed layouts by library version and machine instructions, in letters and digits.
std::string PackingOfThisMachine();

// Limits later products of this thread to it. Each thread calls it before its first product.
void KeepProductsOnThisThread();

}  // namespace hilbert_ring
