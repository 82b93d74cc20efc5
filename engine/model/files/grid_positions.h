// 2-D sine-cosine positions of tiles, computed per tile: a table of all cells takes gigabytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/model/files/encoder_config.h"

namespace hilbert_ring {

// coords: [rows, 2], pixels. OUT_OF_RANGE: outside the grid or NaN; rows count from first_row.
absl::Status CheckCoordinates(const GridPositions& position, std::span<const double> coords,
                              int64_t first_row);

// Frequencies of a half row's angles, [embed_dim / 4].
std::vector<double> GridFrequencies(int64_t embed_dim);

class GridEmbedding {
 public:
  // embed_dim is divisible by 4.
  GridEmbedding(const GridPositions& position, int64_t embed_dim);

  // row [embed_dim] += the position of a tile in the grid. Its first half encodes y, as published.
  void AddTo(double x, double y, std::span<float> row) const;

 private:
  void AddAxis(double cell, float* half) const;

  double tile_size_;
  std::vector<double> frequencies_;  // [embed_dim / 4]
};

}  // namespace hilbert_ring
