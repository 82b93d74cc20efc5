// The real library, if this machine has it: calls that need no GPU.
#include "engine/device/cuda/cublaslt_library.h"

#include <string>

#include "gtest/gtest.h"

namespace hilbert_ring::cuda {
namespace {

TEST(CublasLtLibrary, HasEveryFunctionAndTakesOurDescriptions) {
  const auto loaded = LoadCublasLt();
  if (!loaded.ok()) {
    EXPECT_TRUE(absl::IsFailedPrecondition(loaded.status()));
    GTEST_SKIP() << loaded.status().message();
  }
  const CublasLt& library = *loaded;
  EXPECT_EQ(library.version() / 10000, static_cast<size_t>(CUBLAS_VER_MAJOR));
  EXPECT_EQ(std::string(library.status_name(CUBLAS_STATUS_NOT_SUPPORTED)),
            "CUBLAS_STATUS_NOT_SUPPORTED");
  cublasLtMatmulDesc_t product = nullptr;
  ASSERT_EQ(library.product_create(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
            CUBLAS_STATUS_SUCCESS);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  EXPECT_EQ(
      library.product_set(product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)),
      CUBLAS_STATUS_SUCCESS);
  cublasLtMatrixLayout_t layout = nullptr;
  ASSERT_EQ(library.layout_create(&layout, CUDA_R_16BF, 768, 3072, 768), CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulPreference_t preference = nullptr;
  ASSERT_EQ(library.preference_create(&preference), CUBLAS_STATUS_SUCCESS);
  const uint64_t bytes = uint64_t{32} << 20;
  EXPECT_EQ(library.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                   sizeof(bytes)),
            CUBLAS_STATUS_SUCCESS);
  const uint32_t alignment = 16;
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    EXPECT_EQ(library.preference_set(preference, attribute, &alignment, sizeof(alignment)),
              CUBLAS_STATUS_SUCCESS);
  }
  EXPECT_EQ(library.preference_destroy(preference), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(library.layout_destroy(layout), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(library.product_destroy(product), CUBLAS_STATUS_SUCCESS);
}

}  // namespace
}  // namespace hilbert_ring::cuda
