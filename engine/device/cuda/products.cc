#include "engine/device/cuda/products.h"

#include <compare>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/device/cuda/cublaslt_library.h"
#include "engine/device/cuda/handles.cuh"

namespace hilbert_ring::cuda {
namespace {

constexpr size_t kMostPlans = 256;        // kept; more shapes drop all of them
constexpr uint32_t kMostAlignment = 256;  // the most that algorithms use

// The greatest power of two that divides the address: algorithms depend on it.
uint32_t AlignmentOf(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address) | kMostAlignment;
  return static_cast<uint32_t>(bits & -bits);
}

struct Shape {
  DataType dtype = DataType::kFloat32;
  int64_t rows = 0, in = 0, out = 0, workspace_bytes = 0;
  uint32_t from_alignment = 0, weights_alignment = 0, to_alignment = 0;
  auto operator<=>(const Shape&) const = default;
};

Shape ShapeOf(const ProductTask& task) {
  return {.dtype = task.dtype,
          .rows = task.rows,
          .in = task.in,
          .out = task.out,
          .workspace_bytes = task.workspace_bytes,
          .from_alignment = AlignmentOf(task.from),
          .weights_alignment = AlignmentOf(task.weights),
          .to_alignment = AlignmentOf(task.to)};
}

template <typename Handle>
using Object = std::unique_ptr<std::remove_pointer_t<Handle>, cublasStatus_t (*)(Handle)>;

using Layout = Object<cublasLtMatrixLayout_t>;
using Descriptor = Object<cublasLtMatmulDesc_t>;
using Preference = Object<cublasLtMatmulPreference_t>;

// The library's matrices are column-major: it computes to^T = (weights^T)^T from^T.
struct Plan {
  Descriptor product{nullptr, nullptr};
  Layout weights{nullptr, nullptr}, from{nullptr, nullptr}, to{nullptr, nullptr};
  cublasLtMatmulAlgo_t algorithm{};
};

class LtProducts : public Products {
 public:
  explicit LtProducts(const CublasLt& library) : library_(library) {}
  ~LtProducts() override {
    plans_.clear();
    if (handle_ != nullptr) library_.destroy(handle_);
  }

  absl::Status Prepare() { return StatusOf(library_.create(&handle_), "starting it"); }

  absl::Status Start(const ProductTask& task, void* stream) override {
    const Shape shape = ShapeOf(task);
    auto found = plans_.find(shape);
    if (found == plans_.end()) {
      Plan plan;
      RETURN_IF_ERROR(MakePlan(shape, plan));
      if (plans_.size() >= kMostPlans) plans_.clear();
      found = plans_.emplace(shape, std::move(plan)).first;
    }
    const Plan& plan = found->second;
    const float one = 1, zero = 0;
    return StatusOf(
        library_.multiply(handle_, plan.product.get(), &one, task.weights, plan.weights.get(),
                          task.from, plan.from.get(), &zero, task.to, plan.to.get(), task.to,
                          plan.to.get(), &plan.algorithm, task.workspace,
                          static_cast<size_t>(task.workspace_bytes),
                          static_cast<cudaStream_t>(stream)),
        "multiplying");
  }

 private:
  absl::Status StatusOf(cublasStatus_t status, absl::string_view what) const {
    if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
    const std::string message =
        absl::StrCat("cuBLASLt, ", what, ": ", library_.status_name(status));
    return status == CUBLAS_STATUS_ALLOC_FAILED ? absl::ResourceExhaustedError(message)
                                                : absl::InternalError(message);
  }

  absl::Status MakeLayout(DataType dtype, int64_t rows, int64_t columns, Layout& layout) const {
    cublasLtMatrixLayout_t made = nullptr;
    RETURN_IF_ERROR(StatusOf(
        library_.layout_create(&made, dtype == DataType::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F,
                               static_cast<uint64_t>(columns), static_cast<uint64_t>(rows),
                               columns),
        "describing a matrix"));
    layout = Layout(made, library_.layout_destroy);
    return absl::OkStatus();
  }

  absl::Status MakePlan(const Shape& shape, Plan& plan) const {
    cublasLtMatmulDesc_t product = nullptr;
    // CUBLAS_COMPUTE_32F excludes TF32.
    RETURN_IF_ERROR(StatusOf(library_.product_create(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                             "describing a product"));
    plan.product = Descriptor(product, library_.product_destroy);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    RETURN_IF_ERROR(StatusOf(
        library_.product_set(product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)),
        "describing a product"));
    RETURN_IF_ERROR(MakeLayout(shape.dtype, shape.out, shape.in, plan.weights));
    RETURN_IF_ERROR(MakeLayout(shape.dtype, shape.rows, shape.in, plan.from));
    RETURN_IF_ERROR(MakeLayout(DataType::kFloat32, shape.rows, shape.out, plan.to));
    Preference preference{nullptr, nullptr};
    RETURN_IF_ERROR(MakePreference(shape, preference));
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    RETURN_IF_ERROR(StatusOf(
        library_.heuristic(handle_, product, plan.weights.get(), plan.from.get(), plan.to.get(),
                           plan.to.get(), preference.get(), 1, &result, &found),
        "choosing an algorithm"));
    if (found == 0)
      return absl::InternalError("cuBLASLt, choosing an algorithm: the library offers 0");
    RETURN_IF_ERROR(StatusOf(result.state, "choosing an algorithm"));
    plan.algorithm = result.algo;
    return absl::OkStatus();
  }

  absl::Status MakePreference(const Shape& shape, Preference& preference) const {
    cublasLtMatmulPreference_t made = nullptr;
    RETURN_IF_ERROR(StatusOf(library_.preference_create(&made), "describing a preference"));
    preference = Preference(made, library_.preference_destroy);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      return StatusOf(library_.preference_set(made, attribute, &value, sizeof(value)),
                      "describing a preference");
    };
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                        static_cast<uint64_t>(shape.workspace_bytes)));
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.weights_alignment));
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.from_alignment));
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.to_alignment));
    return set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.to_alignment);
  }

  const CublasLt library_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Shape, Plan> plans_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Products>> MakeProducts() {
  ASSIGN_OR_RETURN(const CublasLt library, LoadCublasLt());
  auto products = std::make_unique<LtProducts>(library);
  RETURN_IF_ERROR(products->Prepare());
  return products;
}

}  // namespace hilbert_ring::cuda
