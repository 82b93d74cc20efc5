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

// Returns the outputs that the flags request. Defaults follow published slide encoders. The layer
// is the last; the model's final norm applies if only that layer is requested. Pooling is the class
// token's vector, the mean without a class token, or none if the model does not pool. Errors of
// CheckOutputs, and INVALID_ARGUMENT: --layers is not a list of numbers.
absl::StatusOr<EncoderOutputs> OutputsOf(const EncodeCommand& command, const EncoderConfig& config);

}  // namespace hilbert_ring::cli
