// The flags of `hilbert-ring encode`.
#pragma once

#include "absl/status/statusor.h"
#include "client/cli/commands.h"
#include "engine/model/files/encoder_config.h"
#include "engine/model/files/pooling.h"

namespace CLI {
class App;
}

namespace hilbert_ring::cli {

// command must outlive app.
void AddEncodeFlags(CLI::App& app, EncodeCommand& command);

// What the flags ask of a model. Where they do not say: the class token's vector (the mean of
// models without one, every row of models that do not pool) of the last layer, with the model's
// final norm where the last layer is all that is asked for, as published slide encoders give it.
// Errors of CheckOutputs, and INVALID_ARGUMENT: --layers that are no list of numbers.
absl::StatusOr<EncoderOutputs> OutputsOf(const EncodeCommand& command, const EncoderConfig& config);

}  // namespace hilbert_ring::cli
