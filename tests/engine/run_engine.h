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
  std::vector<float> q;         // [tokens, heads, head_dim]
  std::vector<float> k;         // [tokens, kv_heads, head_dim]
  std::vector<float> v;         // [tokens, kv_heads, value_dim]
  std::vector<int64_t> coords;  // [tokens, axes] or empty
};

EngineInputs RandomInputs(const JobSpec& spec, uint64_t seed);

struct EngineResult {
  Plan plan;
  std::vector<float> out;        // [tokens, heads, value_dim]
  std::vector<float> lse;        // [tokens, heads]
  std::vector<Figures> figures;  // by rank
};

// Inputs are rounded to spec.dtype on their way into the shards. The kernel is named as
// OptionsFor (tests/unit/device/kernel_options.h) takes it; empty: KernelUnderTest().
absl::StatusOr<EngineResult> RunEngine(const JobSpec& spec, const EngineInputs& inputs, int workers,
                                       RingKind kind, const std::string& kernel = "");

// That of the environment variable HILBERT_RING_TEST_KERNEL, else "cpu".
std::string KernelUnderTest();

// Every kernel of this machine: the processor's instruction sets and the GPU's; where
// HILBERT_RING_TEST_KERNEL is set, those of its device alone, or that kernel of a GPU
// ("cuda/native").
std::vector<std::string> KernelsUnderTest();

// The same over a ring of communicators, which is of no use after an error; the first by rank is
// the result's.
struct EngineOptions {
  std::chrono::milliseconds limit{60'000};
  std::string kernel;  // as of RunEngine
  // Of each rank's device; null: it is used as it is.
  std::function<std::unique_ptr<Device>(std::unique_ptr<Device>)> wrap;
};
absl::StatusOr<EngineResult> RunEngineOver(const CommunicatorRing& ring, const JobSpec& spec,
                                           const EngineInputs& inputs,
                                           const EngineOptions& options = {});

}  // namespace hilbert_ring::testing
