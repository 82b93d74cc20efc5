// The emulated GPU's cuBLASLt computes products on the host, with sums in float64. Matrices are
// column-major, with `ld` elements from column to column. Some wrong calls return an error. Others
// end the process: an algorithm for another shape, memory aligned worse than stated, a smaller
// workspace.
#include <cublasLt.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <numeric>
#include <vector>

#include "engine/device/cuda/cublaslt_library.h"
#include "engine/spec/numbers.h"
#include "tests/unit/device/cuda_emulation/block_runner.h"
#include "tests/unit/device/cuda_emulation/cublaslt_calls.h"

struct EmulatedLt {};
struct EmulatedProduct {
  cublasComputeType_t compute;
  cublasOperation_t of_a = CUBLAS_OP_N, of_b = CUBLAS_OP_N;
};
struct EmulatedLayout {
  cudaDataType type;
  uint64_t rows, columns;
  int64_t ld;
};
struct EmulatedPreference {
  uint64_t workspace_bytes = 0;
  uint32_t a = 256, b = 256, c = 256, d = 256;
};

namespace {

using hilbert_ring::emulation::Fail;

// An algorithm takes this workspace, or less if the preference allows less.
constexpr uint64_t kWorkspaceBytes = 1024;

std::atomic<int64_t> heuristics = 0, alive = 0;

template <typename T>
cublasStatus_t Make(T** made, T object) {
  *made = new T(object);
  ++alive;
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T>
cublasStatus_t Drop(T* object) {
  delete object;
  --alive;
  return CUBLAS_STATUS_SUCCESS;
}

// An algorithm computes products of these sizes, type and least alignments in bytes.
struct Chosen {
  uint64_t m, n, k, type;
  uint32_t a, b, d;
  uint64_t workspace_bytes;
};
static_assert(sizeof(Chosen) <= sizeof(cublasLtMatmulAlgo_t));

Chosen Of(const EmulatedProduct& product, const EmulatedLayout& a, const EmulatedLayout& d) {
  return {.m = d.rows,
          .n = d.columns,
          .k = product.of_a == CUBLAS_OP_T ? a.rows : a.columns,
          .type = static_cast<uint64_t>(a.type)};
}

bool Fits(const EmulatedProduct& product, const EmulatedLayout& a, const EmulatedLayout& b,
          const EmulatedLayout& c, const EmulatedLayout& d) {
  const Chosen sizes = Of(product, a, d);
  const auto is = [](const EmulatedLayout& layout, cublasOperation_t operation, uint64_t rows,
                     uint64_t columns) {
    if (operation == CUBLAS_OP_T) std::swap(rows, columns);
    return layout.rows == rows && layout.columns == columns &&
           layout.ld >= static_cast<int64_t>(rows);
  };
  return is(a, product.of_a, sizes.m, sizes.k) && is(b, product.of_b, sizes.k, sizes.n) &&
         is(c, CUBLAS_OP_N, sizes.m, sizes.n) && is(d, CUBLAS_OP_N, sizes.m, sizes.n) &&
         a.type == b.type && d.type == CUDA_R_32F && c.type == d.type &&
         product.compute == CUBLAS_COMPUTE_32F;
}

float At(const EmulatedLayout& layout, cublasOperation_t operation, const void* data, uint64_t row,
         uint64_t column) {
  if (operation == CUBLAS_OP_T) std::swap(row, column);
  const uint64_t index = column * static_cast<uint64_t>(layout.ld) + row;
  return layout.type == CUDA_R_16BF
             ? hilbert_ring::BFloat16ToFloat(static_cast<const uint16_t*>(data)[index])
             : static_cast<const float*>(data)[index];
}

// Returns the dot product. The compiler can add the eight partial sums as a vector.
double Dot(const double* a, const double* b, uint64_t count) {
  constexpr uint64_t kSums = 8;
  double sums[kSums] = {};
  uint64_t k = 0;
  for (; k + kSums <= count; k += kSums) {
    for (uint64_t i = 0; i < kSums; ++i) sums[i] += a[k + i] * b[k + i];
  }
  for (; k < count; ++k) sums[k % kSums] += a[k] * b[k];
  return std::accumulate(std::begin(sums), std::end(sums), 0.0);
}

bool Aligned(const void* data, uint32_t to) { return reinterpret_cast<uintptr_t>(data) % to == 0; }

}  // namespace

namespace hilbert_ring {

emulation::LtCalls emulation::CountedLtCalls() {
  return {.heuristics = heuristics, .alive = alive};
}

absl::StatusOr<cuda::CublasLt> cuda::LoadCublasLt() {
  return CublasLt{.create = &cublasLtCreate,
                  .destroy = &cublasLtDestroy,
                  .version = &cublasLtGetVersion,
                  .status_name = &cublasLtGetStatusName,
                  .product_create = &cublasLtMatmulDescCreate,
                  .product_set = &cublasLtMatmulDescSetAttribute,
                  .product_destroy = &cublasLtMatmulDescDestroy,
                  .layout_create = &cublasLtMatrixLayoutCreate,
                  .layout_destroy = &cublasLtMatrixLayoutDestroy,
                  .preference_create = &cublasLtMatmulPreferenceCreate,
                  .preference_set = &cublasLtMatmulPreferenceSetAttribute,
                  .preference_destroy = &cublasLtMatmulPreferenceDestroy,
                  .heuristic = &cublasLtMatmulAlgoGetHeuristic,
                  .multiply = &cublasLtMatmul};
}

}  // namespace hilbert_ring

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return Make(handle, EmulatedLt{}); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return Drop(handle); }
size_t cublasLtGetVersion() { return 130000; }
const char* cublasLtGetStatusName(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_ALLOC_FAILED) return "CUBLAS_STATUS_ALLOC_FAILED";
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                               : "CUBLAS_STATUS_EXECUTION_FAILED";
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  return Make(product, EmulatedProduct{.compute = compute});
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  if (bytes != sizeof(cublasOperation_t)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(attribute == CUBLASLT_MATMUL_DESC_TRANSA ? &product->of_a : &product->of_b, value,
              bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) { return Drop(product); }
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
  return Make(layout, EmulatedLayout{.type = type, .rows = rows, .columns = columns, .ld = ld});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return Drop(layout); }
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return Make(preference, EmulatedPreference{});
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    if (bytes != sizeof(uint64_t)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&preference->workspace_bytes, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  if (bytes != sizeof(uint32_t)) return CUBLAS_STATUS_INVALID_VALUE;
  uint32_t* const of[] = {&preference->a, &preference->b, &preference->c, &preference->d};
  std::memcpy(of[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return Drop(preference);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  *found = 0;
  ++heuristics;
  if (wanted < 1 || !Fits(*product, *a, *b, *c, *d)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  Chosen chosen = Of(*product, *a, *d);
  chosen.a = preference->a;
  chosen.b = preference->b;
  chosen.d = std::min(preference->c, preference->d);
  chosen.workspace_bytes = std::min(kWorkspaceBytes, preference->workspace_bytes);
  *found = 1;
  results[0] = {.workspaceSize = chosen.workspace_bytes, .state = CUBLAS_STATUS_SUCCESS};
  std::memcpy(&results[0].algo, &chosen, sizeof(chosen));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t) {
  Chosen chosen;
  std::memcpy(&chosen, algorithm, sizeof(chosen));
  const Chosen sizes = Of(*product, *a_layout, *d_layout);
  if (!Fits(*product, *a_layout, *b_layout, *c_layout, *d_layout) || chosen.m != sizes.m ||
      chosen.n != sizes.n || chosen.k != sizes.k || chosen.type != sizes.type) {
    Fail("a product's algorithm was chosen for another");
  }
  if (!Aligned(a, chosen.a) || !Aligned(b, chosen.b) || !Aligned(d, chosen.d) || c != d) {
    Fail("a matrix is aligned worse than stated");
  }
  if (workspace_bytes < chosen.workspace_bytes) Fail("a product's workspace is too small");
  if (!EmulatedKernelRuns()) return CUBLAS_STATUS_SUCCESS;
  std::memset(workspace, 0xff, chosen.workspace_bytes);
  const float scale = *static_cast<const float*>(alpha), old = *static_cast<const float*>(beta);
  if (scale != 1 || old != 0) Fail("a product is scaled");
  std::vector<double> rows(sizes.m * sizes.k), column(sizes.k);
  for (uint64_t m = 0; m < sizes.m; ++m) {
    for (uint64_t k = 0; k < sizes.k; ++k) {
      rows[m * sizes.k + k] = At(*a_layout, product->of_a, a, m, k);
    }
  }
  for (uint64_t n = 0; n < sizes.n; ++n) {
    for (uint64_t k = 0; k < sizes.k; ++k) column[k] = At(*b_layout, product->of_b, b, k, n);
    for (uint64_t m = 0; m < sizes.m; ++m) {
      static_cast<float*>(d)[n * static_cast<uint64_t>(d_layout->ld) + m] =
          static_cast<float>(Dot(&rows[m * sizes.k], column.data(), sizes.k));
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}
