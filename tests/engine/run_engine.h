// Runs a job through the engine alone: plan, stores, ranks as threads, one communicator each.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/plan/plan.h"
#include "engine/run/executor.h"
#include "engine/spec/job_spec.h"
#include "tests/conformance/communicator_rings.h"

namespace hilbert_ring::testing {

struct EngineInputs {
  std::vector<float> q;            // [tokens, heads, head_dim]
  std::vector<float> k;            // [tokens, kv_heads, head_dim]
  std::vector<float> v;            // [tokens, kv_heads, value_dim]
  std::vector<int64_t> coords;     // [tokens, axes] or empty
  std::vector<float> bias_coords;  // also
};

EngineInputs RandomInputs(const JobSpec& spec, uint64_t seed);

struct EngineResult {
  Plan plan;
  std::vector<float> out;        // [tokens, heads, value_dim]
  std::vector<float> lse;        // [tokens, heads]
  std::vector<Figures> figures;  // by rank
};

// Rounds inputs to spec.dtype. kernel: a name for OptionsFor (tests/unit/device/kernel_options.h);
// empty: KernelUnderTest().
absl::StatusOr<EngineResult> RunEngine(const JobSpec& spec, const EngineInputs& inputs, int workers,
                                       RingKind kind, const std::string& kernel = "");

std::string KernelUnderTest();

// Every kernel of this machine, or if HILBERT_RING_TEST_KERNEL is set, of that device, or that GPU
// kernel ("cuda/native").
std::vector<std::string> KernelsUnderTest();

// Runs over communicators, which an error makes unusable. The result has rank 0's plan.
struct EngineOptions {
  std::chrono::milliseconds limit{60'000};
  std::string kernel;  // as in RunEngine
  // Wraps each rank's device; may be null.
  std::function<std::unique_ptr<Device>(std::unique_ptr<Device>)> wrap;
};
absl::StatusOr<EngineResult> RunEngineOver(const CommunicatorRing& ring, const JobSpec& spec,
                                           const EngineInputs& inputs,
                                           const EngineOptions& options = {});

}  // namespace hilbert_ring::testing
