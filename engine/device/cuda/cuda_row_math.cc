#include "engine/device/cuda/cuda_row_math.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/device/cuda/handles.cuh"
#include "engine/device/cuda/kernels/model_rows.cuh"

namespace hilbert_ring::cuda {
namespace {

absl::Status Within(const absl::Status& status, const std::string& what) {
  return status.ok() ? status
                     : absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

class CudaRowMath : public RowMath {
 public:
  CudaRowMath(std::unique_ptr<Products> products, StreamWork work)
      : products_(std::move(products)), work_(std::move(work)) {}

  absl::Status Run(std::span<const ModelStep> steps) override {
    for (const ModelStep& step : steps) {
      RETURN_IF_ERROR(CheckStep(step));
    }
    if (steps.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(work_.begin());
    absl::Status status;
    for (const ModelStep& step : steps) {
      status = std::visit([this](const auto& task) { return Start(task); }, step);
      if (!status.ok()) {
        status = Within(status, NameOf(step));
        break;
      }
    }
    // The stream's work must not outlive the call, even after an error.
    status.Update(Within(work_.end(), absl::StrCat("rows of a model, to ", NameOf(steps.back()))));
    return status;
  }

 private:
  cudaStream_t stream() const { return static_cast<cudaStream_t>(work_.stream); }

  absl::Status Start(const ProductTask& task) {
    if (task.rows == 0 || task.out == 0) return absl::OkStatus();
    return products_->Start(task, work_.stream);
  }
  absl::Status Start(const RowsTask& task) {
    return CudaStatus(LaunchRows(task, stream()), "starting the kernel");
  }
  absl::Status Start(const PlaceTask& task) {
    return CudaStatus(LaunchPlace(task, stream()), "starting the kernel");
  }
  absl::Status Start(const SumTask& task) {
    return CudaStatus(LaunchSum(task, stream()), "starting the kernel");
  }

  const std::unique_ptr<Products> products_;
  const StreamWork work_;
};

}  // namespace

std::unique_ptr<RowMath> MakeRowMath(std::unique_ptr<Products> products, StreamWork work) {
  return std::make_unique<CudaRowMath>(std::move(products), std::move(work));
}

}  // namespace hilbert_ring::cuda
