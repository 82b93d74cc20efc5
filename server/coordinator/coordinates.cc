#include "server/coordinator/coordinates.h"

#include <cstring>

namespace hilbert_ring::server {

int64_t Coordinates::MemoryBytes(const JobSpec& spec) {
  // 8 bytes a coordinate, the order (8 to 16 a token) and 32 a token while it is sorted.
  return spec.tokens * (8 * int64_t{spec.ordering->coordinate_axes} + 48);
}

Coordinates::Coordinates(const JobSpec& spec)
    : axes_(spec.ordering->coordinate_axes), values_(spec.tokens * axes_) {}

void Coordinates::Place(const v1::Chunk& chunk) {
  int64_t* to = values_.data() + chunk.first_row() * axes_;
  const char* from = chunk.payload().data();
  for (int64_t i = 0; i < chunk.rows() * axes_; ++i) {
    uint32_t value;
    std::memcpy(&value, from + i * sizeof(value), sizeof(value));
    to[i] = value;
  }
}

}  // namespace hilbert_ring::server
