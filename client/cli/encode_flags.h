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

// Returns the outputs that the flags request. Defaults, as of published slide encoders: the last
// layer, with the model's final norm if only that layer is requested; the class token's vector, or
// the mean for models without one, or every row for models that do not pool. Errors of
// CheckOutputs, and INVALID_ARGUMENT: --layers is not a list of numbers.
absl::StatusOr<EncoderOutputs> OutputsOf(const EncodeCommand& command, const EncoderConfig& config);

}  // namespace hilbert_ring::cli
