#include "server/rows/coordinates.h"

#include <algorithm>

namespace hilbert_ring::server {

int64_t Coordinates::MemoryBytes(const JobSpec& spec) {
  // 8 bytes a coordinate, the order, and 32 a token for sorting.
  return OrderBytes(spec) + spec.tokens * (8 * int64_t{spec.ordering->coordinate_axes} + 32);
}

int64_t Coordinates::OrderBytes(const JobSpec& spec) {
  return 16 * spec.tokens;  // 8 to 16 a token
}

Coordinates::Coordinates(const JobSpec& spec)
    : axes_(spec.ordering->coordinate_axes), values_(spec.tokens * axes_) {}

void Coordinates::Place(const v1::Chunk& chunk, const wire::Payload& payload) {
  int64_t* to = values_.data() + chunk.first_row() * axes_;
  wire::PayloadReader reader(payload);
  std::vector<uint32_t> values(chunk.rows() * axes_);
  reader.Read(values.data(), static_cast<int64_t>(values.size() * sizeof(uint32_t)));
  std::copy(values.begin(), values.end(), to);
}

}  // namespace hilbert_ring::server
