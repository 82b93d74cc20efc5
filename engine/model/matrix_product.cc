#include "engine/model/matrix_product.h"

#include <omp.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/device/cpu/machine.h"
#include "engine/spec/numbers.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace hilbert_ring {
namespace {

using Memory = dnnl::memory;

// The layout of weights is chosen for a product of this many rows. Others use the same layout.
constexpr int64_t kRowsOfLayout = 256;

const dnnl::engine& Processor() {
  static const dnnl::engine processor(dnnl::engine::kind::cpu, 0);
  return processor;
}

// Calls oneDNN and returns its exception as a status.
template <typename F>
absl::Status Caught(const char* what, const F& call) {
  try {
    call();
    return absl::OkStatus();
  } catch (const dnnl::error& error) {
    const std::string message = absl::StrCat(what, ": ", error.what());
    return error.status == dnnl_out_of_memory ? absl::ResourceExhaustedError(message)
                                              : absl::InternalError(message);
  }
}

Memory::data_type TypeOf(DataType dtype) {
  return dtype == DataType::kBFloat16 ? Memory::data_type::bf16 : Memory::data_type::f32;
}

Memory::desc WeightsOf(const MatrixShape& shape, Memory::format_tag tag) {
  return {{shape.in, shape.out}, TypeOf(StorageOf(shape.operand)), tag};
}

Memory::desc BiasOf(const MatrixShape& shape) {
  return {{1, shape.out}, Memory::data_type::f32, Memory::format_tag::ab};
}

dnnl::matmul::primitive_desc DescriptorOf(const MatrixShape& shape, const Memory::desc& weights,
                                          int64_t rows, DataType to) {
  const Memory::desc from({rows, shape.in}, TypeOf(StorageOf(shape.operand)),
                          Memory::format_tag::ab);
  const Memory::desc into({rows, shape.out}, TypeOf(to), Memory::format_tag::ab);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return {dnnl::matmul::desc(from, weights, BiasOf(shape), into), attributes, Processor()};
}

Memory::desc PackedLayout(const MatrixShape& shape) {
  return DescriptorOf(shape, WeightsOf(shape, Memory::format_tag::any), kRowsOfLayout,
                      DataType::kFloat32)
      .weights_desc();
}

}  // namespace

Operand OperandOf(DataType compute) {
  if (compute == DataType::kFloat32) return Operand::kFloat32;
  return HasAvx512BFloat16() ? Operand::kBFloat16 : Operand::kRoundedFloat32;
}

DataType StorageOf(Operand operand) {
  return operand == Operand::kBFloat16 ? DataType::kBFloat16 : DataType::kFloat32;
}

std::string PackingOfThisMachine() {
  const dnnl_version_t& version = *dnnl_version();
  return absl::StrCat(version.major, "x", version.minor, "x", version.patch, "x", version.hash, "x",
                      static_cast<int>(dnnl::get_effective_cpu_isa()));
}

void KeepProductsOnThisThread() { omp_set_num_threads(1); }

absl::StatusOr<int64_t> PackedMatrixBytes(const MatrixShape& shape) {
  int64_t bytes = 0;
  RETURN_IF_ERROR(Caught("oneDNN's layout of weights",
                         [&] { bytes = static_cast<int64_t>(PackedLayout(shape).get_size()); }));
  return bytes;
}

struct PackedMatrix::Packed {
  MatrixShape shape;
  Memory::desc layout;
  std::byte* weights = nullptr;  // not owned
  std::vector<float> bias;
};

PackedMatrix::PackedMatrix(std::unique_ptr<Packed> packed) : packed_(std::move(packed)) {}
PackedMatrix::PackedMatrix(PackedMatrix&&) noexcept = default;
PackedMatrix& PackedMatrix::operator=(PackedMatrix&&) noexcept = default;
PackedMatrix::~PackedMatrix() = default;

const MatrixShape& PackedMatrix::shape() const { return packed_->shape; }

int64_t PackedMatrix::bytes() const {
  return static_cast<int64_t>(packed_->layout.get_size() + packed_->bias.size() * sizeof(float));
}

absl::StatusOr<PackedMatrix> PackedMatrix::Make(std::span<std::byte> place,
                                                const MatrixShape& shape,
                                                std::span<const float> weights,
                                                std::span<const float> bias) {
  KeepProductsOnThisThread();
  auto packed = std::make_unique<Packed>();
  packed->shape = shape;
  packed->bias.assign(bias.begin(), bias.end());
  std::vector<float> rounded;
  if (shape.operand == Operand::kRoundedFloat32) {
    rounded.reserve(weights.size());
    for (const float w : weights) rounded.push_back(BFloat16ToFloat(FloatToBFloat16(w)));
    weights = rounded;
  }
  RETURN_IF_ERROR(
      Caught("oneDNN's layout of weights", [&] { packed->layout = PackedLayout(shape); }));
  if (packed->layout.get_size() != place.size()) {
    return absl::InternalError(absl::StrCat("packed weights take ", packed->layout.get_size(),
                                            " bytes, their place has ", place.size()));
  }
  packed->weights = place.data();
  if (weights.empty()) return PackedMatrix(std::move(packed));
  RETURN_IF_ERROR(Caught("oneDNN's packing of weights", [&] {
    // Rows of the file are columns of the product: [in, out] with `ba` strides.
    const Memory::desc plain({shape.in, shape.out}, Memory::data_type::f32, Memory::format_tag::ba);
    Memory from(plain, Processor(), const_cast<float*>(weights.data()));
    Memory to(packed->layout, Processor(), packed->weights);
    dnnl::stream stream(Processor());
    dnnl::reorder(from, to).execute(stream, from, to);
    stream.wait();
  }));
  return PackedMatrix(std::move(packed));
}

struct RowProduct::Kernel {
  MatrixShape shape;
  dnnl::matmul::primitive_desc descriptor;
  dnnl::matmul product;
};

RowProduct::RowProduct(std::unique_ptr<Kernel> kernel) : kernel_(std::move(kernel)) {}
RowProduct::RowProduct(RowProduct&&) noexcept = default;
RowProduct& RowProduct::operator=(RowProduct&&) noexcept = default;
RowProduct::~RowProduct() = default;

absl::StatusOr<RowProduct> RowProduct::Make(const MatrixShape& shape, int64_t rows, DataType to) {
  KeepProductsOnThisThread();
  auto kernel = std::make_unique<Kernel>();
  kernel->shape = shape;
  RETURN_IF_ERROR(Caught("oneDNN's product", [&] {
    kernel->descriptor = DescriptorOf(shape, PackedLayout(shape), rows, to);
    kernel->product = dnnl::matmul(kernel->descriptor);
  }));
  return RowProduct(std::move(kernel));
}

int64_t RowProduct::scratch_bytes() const {
  return static_cast<int64_t>(kernel_->descriptor.scratchpad_desc().get_size());
}

absl::Status RowProduct::Run(const PackedMatrix& weights, const void* from, void* to,
                             std::byte* scratch) const {
  return Caught("oneDNN's product", [&] {
    const auto& descriptor = kernel_->descriptor;
    const PackedMatrix::Packed& packed = *weights.packed_;
    const auto memory = [](const Memory::desc& layout, const void* data) {
      return Memory(layout, Processor(), const_cast<void*>(data));
    };
    dnnl::stream stream(Processor());
    kernel_->product.execute(
        stream, {{DNNL_ARG_SRC, memory(descriptor.src_desc(), from)},
                 {DNNL_ARG_WEIGHTS, memory(packed.layout, packed.weights)},
                 {DNNL_ARG_BIAS, memory(BiasOf(kernel_->shape), packed.bias.data())},
                 {DNNL_ARG_DST, memory(descriptor.dst_desc(), to)},
                 {DNNL_ARG_SCRATCHPAD, memory(descriptor.scratchpad_desc(), scratch)}});
    stream.wait();
  });
}

}  // namespace hilbert_ring
