// cuDNN's attention, loaded at a GPU's first use: programs start without the library.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/device/cuda/cudnn_problem.h"
#include "engine/device/cuda/handles.cuh"
#include "engine/device/cuda/kernels/kernels.cuh"
#include "engine/device/cuda/library_attention.h"

// The frontend's headers find the opened library here.
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace hilbert_ring::cuda {
namespace {

namespace fe = cudnn_frontend;

constexpr int kLeastCapability = 80;
constexpr size_t kLeastVersion = 91200;  // honours strides of the log-sum-exp
constexpr size_t kMostGraphs = 256;      // kept; more shapes drop all of them
constexpr int64_t kMostScores = int64_t{1}
                                << 36;  // of a call: 25 ms at head dim 64 and 700 TFLOP/s

// A log-sum-exp beyond which results are in doubt. cuDNN multiplies scores by the scale before it
// subtracts a row's maximum. Both products are rounded by up to 2^-24, so a weight is wrong by
// 2^-23 of the log-sum-exp: here a quarter of its rounding to the type, 2^-11 or 2^-8. (On an H200
// float16 results were out of tolerance at 2^14.)
float MostLse(DataType dtype) { return dtype == DataType::kFloat16 ? 0x1p10f : 0x1p13f; }

enum Uid : int64_t { kQ = 1, kK, kV, kOut, kStats };

// Opens cuDNN for the frontend's headers; false if it is not on this machine.
bool LoadCudnn() {
  static void* const library = [] {
    void* const found = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
    return found != nullptr ? found : dlopen("libcudnn.so", RTLD_NOW | RTLD_GLOBAL);
  }();
  fe::cudnn_dlhandle = library;
  return library != nullptr;
}

absl::Status CudnnStatus(fe::error_t error, absl::string_view what) {
  if (error.is_good()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cuDNN, ", what, ": ", error.get_message()));
}

std::vector<int64_t> ListOf(const std::array<int64_t, 4>& numbers) {
  return {numbers.begin(), numbers.end()};
}

auto Tensor(Uid uid, const char* name, const CudnnTensor& tensor) {
  return fe::graph::Tensor_attributes()
      .set_name(name)
      .set_uid(uid)
      .set_dim(ListOf(tensor.dims))
      .set_stride(ListOf(tensor.strides));
}

// A graph that is ready to run, or null if cuDNN has no engine for it.
struct Plan {
  std::shared_ptr<fe::graph::Graph> graph;
  int64_t workspace_bytes = 0;
  std::string refusal;  // cuDNN's message, without a graph
};

class CudnnAttention : public LibraryAttention {
 public:
  explicit CudnnAttention(int compute_capability) : compute_capability_(compute_capability) {}
  ~CudnnAttention() override {
    plans_in_flight_.clear();
    plans_.clear();
    if (handle_ != nullptr) fe::detail::destroy_handle(handle_);
    if (workspace_ != nullptr) cudaFree(workspace_);
  }

  absl::Status Prepare() {
    if (!LoadCudnn()) return absl::FailedPreconditionError("cuDNN: libcudnn.so.9 is not found");
    try {
      const size_t version = fe::detail::get_backend_version();
      if (version < kLeastVersion) {
        return absl::FailedPreconditionError(
            absl::StrCat("cuDNN is ", version, ", ", kLeastVersion, " is needed"));
      }
      if (fe::detail::create_handle(&handle_) != CUDNN_STATUS_SUCCESS) {
        handle_ = nullptr;
        return absl::FailedPreconditionError("cuDNN does not start");
      }
    } catch (const std::exception& error) {
      return absl::FailedPreconditionError(absl::StrCat("cuDNN: ", error.what()));
    }
    return MakePinned(doubts_, kMostLibraryTasks * sizeof(unsigned));
  }

  std::string name() const override { return "cudnn"; }

  absl::StatusOr<int64_t> Attend(const AttentionTask& task, void* stream) override {
    refusal_ = in_flight_ == kMostLibraryTasks ? "too many tasks are in flight" : WhyNotCudnn(task);
    if (!refusal_.empty()) return 0;
    const std::vector<CudnnCall> calls = CudnnCalls(task, kMostScores);
    if (calls.empty()) {
      refusal_ = "a row has more scores than one call takes";
      return 0;
    }
    try {
      return AttendBy(calls, task, static_cast<cudaStream_t>(stream));
    } catch (const std::exception& error) {
      return absl::InternalError(absl::StrCat("cuDNN: ", error.what()));
    }
  }

  std::string Refusal() const override { return refusal_; }

  std::vector<bool> Doubts() override {
    const auto* const doubts = static_cast<const volatile unsigned*>(doubts_.get());
    std::vector<bool> taken;
    while (taken.size() < in_flight_) taken.push_back(doubts[taken.size()] != 0);
    in_flight_ = 0;
    plans_in_flight_.clear();
    return taken;
  }

 private:
  absl::StatusOr<int64_t> AttendBy(const std::vector<CudnnCall>& calls, const AttentionTask& task,
                                   cudaStream_t stream) {
    std::vector<std::shared_ptr<const Plan>> plans;
    for (const CudnnCall& call : calls) {
      ASSIGN_OR_RETURN(plans.emplace_back(), PlanOf(call.problem));
      if (plans.back()->graph == nullptr) {
        refusal_ = plans.back()->refusal;
        return 0;
      }
    }
    // Graphs whose kernels are queued outlive their eviction.
    plans_in_flight_.insert(plans_in_flight_.end(), plans.begin(), plans.end());
    fe::detail::set_stream(handle_, stream);
    int64_t scores = 0;
    for (size_t i = 0; i < calls.size(); ++i) {
      const CudnnCall& call = calls[i];
      const Plan& plan = *plans[i];
      RETURN_IF_ERROR(Reserve(plan.workspace_bytes, stream));
      const int64_t element = ElementBytes(task.dtype);
      const auto at = [&](const auto& view, int64_t row, int64_t bytes) {
        const auto address = reinterpret_cast<uintptr_t>(view.data);
        const int64_t offset = (call.batch * view.batch_stride + row * view.row_stride) * bytes;
        return reinterpret_cast<void*>(address + static_cast<uintptr_t>(offset));
      };
      std::unordered_map<int64_t, void*> data = {{kQ, at(task.q, call.row, element)},
                                                 {kK, at(task.k, 0, element)},
                                                 {kV, at(task.v, 0, element)},
                                                 {kOut, at(task.out, call.row, element)},
                                                 {kStats, at(task.lse, call.row, sizeof(float))}};
      RETURN_IF_ERROR(
          CudnnStatus(plan.graph->execute(handle_, data, workspace_), "running attention"));
      scores += ScoresOf(call.problem);
    }
    unsigned* const doubt = static_cast<unsigned*>(doubts_.get()) + in_flight_;
    *doubt = 0;
    absl::Status status = CudaStatus(LaunchScaleRows(task, stream), "scaling results");
    status.Update(
        CudaStatus(LaunchDoubt(task, MostLse(task.dtype), doubt, stream), "checking results"));
    RETURN_IF_ERROR(status);
    ++in_flight_;
    return scores;
  }

  absl::StatusOr<std::shared_ptr<const Plan>> PlanOf(const CudnnProblem& problem) {
    const auto known = plans_.find(problem);
    if (known != plans_.end()) return known->second;
    if (plans_.size() >= kMostGraphs) plans_.clear();
    auto graph = std::make_shared<fe::graph::Graph>();
    const auto type =
        problem.dtype == DataType::kBFloat16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF;
    graph->set_io_data_type(type)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT)
        .set_sm_version(compute_capability_);  // else it looks for a shared CUDA runtime
    auto attributes = fe::graph::SDPA_attributes()
                          .set_name("attention")
                          .set_generate_stats(true)
                          .set_attn_scale(problem.scale);
    if (problem.causal) {
      attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
          .set_diagonal_band_right_bound(0);
      // Row i keeps key j if j + bound > i (cudnn_frontend/utils/attn_score_modifiers.h).
      if (problem.left != kUnbounded) {
        attributes.set_diagonal_band_left_bound(static_cast<int>(problem.left + 1));
      }
    }
    auto [out, stats] = graph->sdpa(graph->tensor(Tensor(kQ, "q", problem.q)),
                                    graph->tensor(Tensor(kK, "k", problem.k)),
                                    graph->tensor(Tensor(kV, "v", problem.v)), attributes);
    out->set_output(true)
        .set_uid(kOut)
        .set_dim(ListOf(problem.out.dims))
        .set_stride(ListOf(problem.out.strides));
    stats->set_output(true)
        .set_uid(kStats)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_alignment(sizeof(float))  // they begin at any head
        .set_dim(ListOf(problem.stats.dims))
        .set_stride(ListOf(problem.stats.strides));
    auto plan = std::make_shared<Plan>();
    // Native kernels compute the task if cuDNN fails here.
    try {
      plan->refusal = std::string(
          CudnnStatus(graph->build(handle_, {fe::HeurMode_t::A}), "building a graph").message());
    } catch (const std::exception& error) {
      plan->refusal = absl::StrCat("cuDNN, building a graph: ", error.what());
    }
    if (plan->refusal.empty()) {
      plan->graph = std::move(graph);
      RETURN_IF_ERROR(CudnnStatus(plan->graph->get_workspace_size(plan->workspace_bytes),
                                  "asking for attention's workspace"));
    }
    return plans_.emplace(problem, std::move(plan)).first->second;
  }

  absl::Status Reserve(int64_t bytes, cudaStream_t stream) {
    if (bytes <= workspace_bytes_) return absl::OkStatus();
    // In stream order: a plain free would wait for all streams, even an exchange that hangs.
    cudaError_t error = cudaSuccess;
    if (workspace_ != nullptr) error = cudaFreeAsync(workspace_, stream);
    workspace_ = nullptr;
    workspace_bytes_ = 0;
    if (error == cudaSuccess) {
      error = cudaMallocAsync(&workspace_, static_cast<size_t>(bytes), stream);
    }
    if (error == cudaSuccess) workspace_bytes_ = bytes;
    return CudaStatus(error, absl::StrCat("allocating cuDNN's ", bytes, " bytes of workspace"));
  }

  const int compute_capability_;  // 90 of 9.0
  cudnnHandle_t handle_ = nullptr;
  std::map<CudnnProblem, std::shared_ptr<const Plan>> plans_;
  std::vector<std::shared_ptr<const Plan>> plans_in_flight_;  // of work not awaited yet
  void* workspace_ = nullptr;
  int64_t workspace_bytes_ = 0;
  PinnedMemory doubts_;  // unsigned [kMostLibraryTasks], of tasks in flight
  size_t in_flight_ = 0;
  std::string refusal_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LibraryAttention>> MakeLibraryAttention(AttentionKernel wanted,
                                                                       int compute_capability) {
  if (wanted == AttentionKernel::kNative) return nullptr;
  absl::Status status;
  auto attention = std::make_unique<CudnnAttention>(compute_capability);
  if (compute_capability < kLeastCapability) {
    status = absl::FailedPreconditionError("cuDNN's attention needs compute capability 8.0");
  } else {
    status = attention->Prepare();
  }
  if (status.ok()) return attention;
  if (wanted == AttentionKernel::kAuto) return nullptr;
  return absl::FailedPreconditionError(absl::StrCat("attention kernel cudnn: ", status.message()));
}

}  // namespace hilbert_ring::cuda
