// What a CUDA graph would save a small job: the operations of one attention launch (works to the
// GPU, a kernel, the count of scores back), each put on a stream, beside the same captured once and
// started whole. As a Markdown table. Exits with 1 where there is no GPU.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "engine/device/cuda/handles.cuh"
#include "engine/device/cuda/kernels/kernels.cuh"

namespace hilbert_ring::bench {
namespace {

constexpr int kRounds = 2000;
constexpr int64_t kWorkBytes = 4096;
constexpr int64_t kFloats = 64 * 1024;  // that the kernel writes
constexpr int kLaunches[] = {1, 2, 8};  // of one call, waited for together

void OrFail(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "gpu_graph_bench: %s\n",
               std::string(cuda::CudaStatus(error, what).message()).c_str());
  std::exit(1);
}

struct Buffers {
  void* pinned = nullptr;
  void* device = nullptr;
};

void PutLaunches(const Buffers& buffers, int launches, cudaStream_t stream) {
  for (int i = 0; i < launches; ++i) {
    OrFail(
        cudaMemcpyAsync(buffers.device, buffers.pinned, kWorkBytes, cudaMemcpyHostToDevice, stream),
        "copying works");
    OrFail(cuda::LaunchFillFloats(static_cast<float*>(buffers.device), kFloats, 1.0f, stream),
           "starting a kernel");
    OrFail(cudaMemcpyAsync(buffers.pinned, buffers.device, sizeof(int64_t), cudaMemcpyDeviceToHost,
                           stream),
           "copying scores");
  }
}

double MedianMicroseconds(const std::function<void()>& work) {
  std::vector<double> seconds(kRounds);
  for (double& round : seconds) round = SecondsOf(work);
  std::nth_element(seconds.begin(), seconds.begin() + kRounds / 2, seconds.end());
  return 1e6 * seconds[kRounds / 2];
}

void Measure() {
  Buffers buffers;
  OrFail(cudaHostAlloc(&buffers.pinned, kWorkBytes, cudaHostAllocDefault), "pinning memory");
  OrFail(cudaMalloc(&buffers.device, kFloats * sizeof(float)), "allocating memory");
  cudaStream_t stream = nullptr;
  OrFail(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  const auto await = [&] { OrFail(cudaStreamSynchronize(stream), "waiting"); };

  std::vector<std::vector<std::string>> table = {
      {"launches", "put on a stream, us", "as a graph, us", "making the graph, us"}};
  for (const int launches : kLaunches) {
    const double put = MedianMicroseconds([&] {
      PutLaunches(buffers, launches, stream);
      await();
    });
    cudaGraphExec_t ready = nullptr;
    const double make =
        1e6 * SecondsOf([&] {
          cudaGraph_t graph = nullptr;
          OrFail(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
          PutLaunches(buffers, launches, stream);
          OrFail(cudaStreamEndCapture(stream, &graph), "capturing");
          OrFail(cudaGraphInstantiate(&ready, graph, 0), "making the graph");
          cudaGraphDestroy(graph);
        });
    const double whole = MedianMicroseconds([&] {
      OrFail(cudaGraphLaunch(ready, stream), "starting the graph");
      await();
    });
    cudaGraphExecDestroy(ready);
    table.push_back({std::to_string(launches), Number(put, 1), Number(whole, 1), Number(make, 1)});
  }
  std::printf("\nOne call of attention's launches, median of %d\n\n", kRounds);
  PrintTable(table);
  cudaStreamDestroy(stream);
  cudaFree(buffers.device);
  cudaFreeHost(buffers.pinned);
}

}  // namespace
}  // namespace hilbert_ring::bench

int main() {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    std::fprintf(stderr, "gpu_graph_bench: no CUDA device\n");
    return 1;
  }
  hilbert_ring::bench::Measure();
  return 0;
}
