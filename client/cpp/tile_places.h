// Whether tiles lie apart, as tiles of a slide do. Coordinates that are normalised to [0, 1], or in
// another unit, put many tiles on one place of the model's grid.
//
//   TilePlaces places(position.tile_size, job.slide_tiles);
//   RETURN_IF_ERROR(places.Add(coords));  // again and again, in the order of the tiles
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

namespace hilbert_ring::client {

class TilePlaces {
 public:
  // tile_size: pixels of a side; slide_tiles: tiles of each slide, which outlive this.
  TilePlaces(int64_t tile_size, std::span<const int64_t> slide_tiles);

  // coords: [rows, 2], pixels within the model's grid, of the tiles that follow. INVALID_ARGUMENT,
  // naming slide, places and limit: fewer than half of a slide's tiles have a place of their own,
  // an eighth of a tile's side wide.
  absl::Status Add(std::span<const double> coords);

 private:
  absl::Status EndSlide();

  double places_per_pixel_;
  std::span<const int64_t> slide_tiles_;
  size_t slide_ = 0;
  std::vector<int64_t> places_;  // of the slide's tiles so far
};

}  // namespace hilbert_ring::client
