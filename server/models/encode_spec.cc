#include "server/models/encode_spec.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

absl::Status Wrong(const std::string& message) {
  return wire::ErrorOf(wire::reason::kInvalidSpec, message);
}

absl::Status TooMany(const std::string& message) {
  return wire::WithReason(absl::OutOfRangeError(message), wire::reason::kInvalidSpec);
}

absl::Status CheckSlides(const v1::EncodeSpec& message, const EncoderConfig& config,
                         const SpecLimits& limits) {
  if (message.slide_tiles().empty())
    return Wrong("slide_tiles is empty, must have at least one slide");
  if (message.slide_tiles_size() > limits.max_sequences) {
    return TooMany(absl::StrCat("slide_tiles has ", message.slide_tiles_size(),
                                " slides, the limit is ", limits.max_sequences));
  }
  int64_t tokens = 0;
  for (int i = 0; i < message.slide_tiles_size(); ++i) {
    const int64_t tiles = message.slide_tiles(i);
    if (tiles < 1) {
      return Wrong(absl::StrCat("slide_tiles[", i, "] is ", tiles, ", must be at least 1"));
    }
    const int64_t left = limits.max_tokens - tokens - (config.class_token ? 1 : 0);
    if (tiles > left) {
      return TooMany(absl::StrCat("slide_tiles[", i, "] is ", tiles,
                                  ": the job would have more tokens than ", limits.max_tokens));
    }
    tokens = limits.max_tokens - left + tiles;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<EncodeJob> DecodeEncodeSpec(const v1::EncodeSpec& message,
                                           const EncoderConfig& config, const SpecLimits& limits) {
  EncodeJob job{.config = config};
  const auto dtype = wire::DecodeDataType(message.dtype());
  if (!dtype) {
    return Wrong(absl::StrCat("dtype is ", static_cast<int>(message.dtype()),
                              ", must be FLOAT32, BFLOAT16 or FLOAT16"));
  }
  job.dtype = *dtype;
  const auto compute = wire::DecodeDataType(message.compute());
  if (!compute || *compute == DataType::kFloat16) {
    return Wrong(absl::StrCat("compute is ", static_cast<int>(message.compute()),
                              ", must be FLOAT32 or BFLOAT16"));
  }
  job.compute = *compute;
  switch (message.pooling()) {
    case v1::POOLING_NONE:
      job.outputs.pooling = Pooling::kNone;
      break;
    case v1::POOLING_CLASS:
      job.outputs.pooling = Pooling::kClass;
      break;
    case v1::POOLING_MEAN:
      job.outputs.pooling = Pooling::kMean;
      break;
    default:
      return Wrong(absl::StrCat("pooling is ", static_cast<int>(message.pooling()),
                                ", must be NONE, CLASS or MEAN"));
  }
  job.outputs.final_norm = message.skip_final_norm() ? FinalNorm::kSkipped : FinalNorm::kApplied;
  job.outputs.states.assign(message.states().begin(), message.states().end());
  if (job.outputs.states.empty()) job.outputs.states = {config.layers};
  if (message.attention_map_layer() != 0) {
    job.outputs.attention_map = {
        .layer = message.attention_map_layer(),
        .columns = message.attention_map_by_head() ? MapColumns::kHeads : MapColumns::kMeanOfHeads};
  }
  RETURN_IF_ERROR(CheckSlides(message, config, limits));
  job.slide_tiles.assign(message.slide_tiles().begin(), message.slide_tiles().end());
  if (absl::Status status = CheckOutputs(config, job.outputs); !status.ok()) {
    return wire::WithReason(std::move(status), wire::reason::kInvalidSpec);
  }
  return job;
}

std::vector<std::string> NotesOn(const EncodeJob& job) {
  std::vector<std::string> notes;
  const int64_t longest = TokensOf(job.config, *std::ranges::max_element(job.slide_tiles));
  for (const Branch& branch : job.config.branches) {
    if (branch.segment >= longest || branch.segment % branch.dilation == 0) continue;
    notes.push_back(absl::StrCat(
        "segments of ", branch.segment, " tokens are not divisible by their dilation ",
        branch.dilation,
        ": from the second segment on the published code places their rows late, and its result "
        "differs from this one, which follows the definition"));
  }
  return notes;
}

}  // namespace hilbert_ring::server
