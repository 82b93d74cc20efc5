// Converts engine values to and from messages of hilbert_ring.v1.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/plan/plan.h"
#include "engine/spec/job_spec.h"
#include "engine/spec/tensor.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::wire {

// Largest payload of a chunk in either direction. The 64 KiB left keep each message within 4 MiB.
inline constexpr int64_t kMaxPayloadBytes = (4 << 20) - (64 << 10);
inline constexpr int kMaxMessageBytes = 4 << 20;

// INVALID_ARGUMENT, with the field: an enum is unspecified or unknown, or segments and dilations
// differ in number. Does not validate values (Validate).
absl::StatusOr<JobSpec> DecodeJobSpec(const v1::JobSpec& message);

v1::JobSpec EncodeJobSpec(const JobSpec& spec);

std::optional<DataType> DecodeDataType(v1::DataType message);
v1::DataType EncodeDataType(DataType dtype);

v1::Curve CurveOf(Curve curve);

struct PlanSeconds {
  double seconds = 0;  // 0: unknown
  std::string basis = "planned without workers";
};
v1::PlanResponse EncodePlan(const Plan& plan, const PlanSeconds& time = {});

std::optional<TensorKind> TensorKindOf(v1::Tensor tensor);
v1::Tensor TensorOf(TensorKind tensor);

// Bytes of a row of a tensor of an attention job (COORDS, Q, K, V, OUT or LSE); 0 for others.
int64_t TensorRowBytes(const JobSpec& spec, v1::Tensor tensor);

std::string TensorName(v1::Tensor tensor);  // "Q", "COORDS", ...

}  // namespace hilbert_ring::wire
