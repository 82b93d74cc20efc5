// Decodes a caller's job of a model.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/files/encode_job.h"
#include "engine/spec/job_spec.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::server {

// config: of the model. INVALID_ARGUMENT and OUT_OF_RANGE (INVALID_SPEC): missing or unknown enums,
// slides without tiles, outputs that the model does not have (CheckOutputs), and more slides or
// tokens than the limits.
absl::StatusOr<EncodeJob> DecodeEncodeSpec(const v1::EncodeSpec& message,
                                           const EncoderConfig& config, const SpecLimits& limits);

// Notes on results that differ from the published code's.
std::vector<std::string> NotesOn(const EncodeJob& job);

}  // namespace hilbert_ring::server
