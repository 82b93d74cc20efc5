// What a caller wants of a model, as the engine's job.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/files/encode_job.h"
#include "engine/spec/job_spec.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::server {

// Of a model with this config. INVALID_ARGUMENT and OUT_OF_RANGE (INVALID_SPEC), naming field,
// value and limit: enums that are not given or unknown, slides without tiles, outputs that the
// model does not have (CheckOutputs), and more slides or tokens than the limits.
absl::StatusOr<EncodeJob> DecodeEncodeSpec(const v1::EncodeSpec& message,
                                           const EncoderConfig& config, const SpecLimits& limits);

// What a reader of the job's results should know: where the published code computes another thing.
std::vector<std::string> NotesOn(const EncodeJob& job);

}  // namespace hilbert_ring::server
