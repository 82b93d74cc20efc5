#include "server/rows/bias_coordinates.h"

#include <span>

#include "engine/base/saturating.h"
#include "engine/spec/bias_coordinates.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {

int64_t BiasCoordinates::MemoryBytes(const JobSpec& spec) {
  return SaturatingMultiply(KeyTokens(spec), wire::TensorRowBytes(spec, v1::TENSOR_BIAS_COORDS));
}

BiasCoordinates::BiasCoordinates(const JobSpec& spec)
    : axes_(BiasAxes(spec)), values_(KeyTokens(spec) * axes_) {}

absl::Status BiasCoordinates::Place(const v1::Chunk& chunk, const wire::Payload& payload) {
  const std::span<float> rows =
      std::span(values_).subspan(chunk.first_row() * axes_, chunk.rows() * axes_);
  wire::PayloadReader(payload).Read(rows.data(), static_cast<int64_t>(rows.size_bytes()));
  absl::Status status = CheckBiasCoordinates(rows, axes_, chunk.first_row());
  return status.ok() ? status : wire::WithReason(std::move(status), wire::reason::kBadCoordinates);
}

}  // namespace hilbert_ring::server
