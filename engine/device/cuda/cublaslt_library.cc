#include "engine/device/cuda/cublaslt_library.h"

#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace hilbert_ring::cuda {
namespace {

// The header's major version: another may differ in its structures.
std::string NameOfLibrary() { return absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR); }

void* OpenLibrary() {
  static void* const library = dlopen(NameOfLibrary().c_str(), RTLD_NOW | RTLD_LOCAL);
  return library;
}

}  // namespace

absl::StatusOr<CublasLt> LoadCublasLt() {
  void* const library = OpenLibrary();
  if (library == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("products need cuBLASLt, ", NameOfLibrary(),
                     ", which the loader does not find (it is of CUDA's libraries, or of the "
                     "package nvidia-cublas)"));
  }
  CublasLt functions;
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  find(functions.create, "cublasLtCreate");
  find(functions.destroy, "cublasLtDestroy");
  find(functions.version, "cublasLtGetVersion");
  find(functions.status_name, "cublasLtGetStatusName");
  find(functions.product_create, "cublasLtMatmulDescCreate");
  find(functions.product_set, "cublasLtMatmulDescSetAttribute");
  find(functions.product_destroy, "cublasLtMatmulDescDestroy");
  find(functions.layout_create, "cublasLtMatrixLayoutCreate");
  find(functions.layout_destroy, "cublasLtMatrixLayoutDestroy");
  find(functions.preference_create, "cublasLtMatmulPreferenceCreate");
  find(functions.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(functions.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(functions.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(functions.multiply, "cublasLtMatmul");
  if (!missing.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(NameOfLibrary(), " has no ", missing));
  }
  return functions;
}

}  // namespace hilbert_ring::cuda
