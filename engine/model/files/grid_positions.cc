#include "engine/model/files/grid_positions.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace hilbert_ring {

absl::Status CheckCoordinates(const GridPositions& position, std::span<const double> coords,
                              int64_t first_row) {
  const auto tile_size = static_cast<double>(position.tile_size);
  const auto grid = static_cast<double>(position.grid);
  for (size_t i = 0; i < coords.size(); ++i) {
    const double cell = std::floor(coords[i] / tile_size);
    if (cell >= 0 && cell < grid) continue;
    const size_t row = i / 2;
    return absl::OutOfRangeError(absl::StrCat(
        "coords[", first_row + static_cast<int64_t>(row), "] is [", coords[2 * row], ", ",
        coords[2 * row + 1], "], must be in [0, ", position.grid * position.tile_size, ")"));
  }
  return absl::OkStatus();
}

std::vector<double> GridFrequencies(int64_t embed_dim) {
  std::vector<double> frequencies(embed_dim / 4);
  const auto count = static_cast<double>(frequencies.size());
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(10000.0, -static_cast<double>(i) / count);
  }
  return frequencies;
}

GridEmbedding::GridEmbedding(const GridPositions& position, int64_t embed_dim)
    : tile_size_(static_cast<double>(position.tile_size)),
      frequencies_(GridFrequencies(embed_dim)) {}

void GridEmbedding::AddTo(double x, double y, std::span<float> row) const {
  AddAxis(std::floor(y / tile_size_), row.data());
  AddAxis(std::floor(x / tile_size_), row.data() + row.size() / 2);
}

// Float64, because an angle of a thousand radians has fewer than four decimals in float32.
void GridEmbedding::AddAxis(double cell, float* half) const {
  const size_t count = frequencies_.size();
  for (size_t i = 0; i < count; ++i) {
    const double angle = cell * frequencies_[i];
    half[i] += static_cast<float>(std::sin(angle));
    half[count + i] += static_cast<float>(std::cos(angle));
  }
}

}  // namespace hilbert_ring
