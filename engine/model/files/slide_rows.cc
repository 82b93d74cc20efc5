#include "engine/model/files/slide_rows.h"

#include <algorithm>

namespace hilbert_ring {

SlideRows::SlideRows(std::span<const int64_t> slide_tiles, int64_t class_tokens)
    : class_tokens_(class_tokens), first_token_(1) {
  for (const int64_t tiles : slide_tiles) {
    first_token_.push_back(first_token_.back() + class_tokens + tiles);
  }
}

int64_t SlideRows::SlideOf(int64_t token) const {
  return std::ranges::upper_bound(first_token_, token) - first_token_.begin() - 1;
}

int64_t SlideRows::TilesBefore(int64_t token) const {
  if (token >= tokens()) return tiles();
  const int64_t slide = SlideOf(token);
  return FirstTile(slide) + std::max<int64_t>(0, token - FirstToken(slide) - class_tokens_);
}

SlideRows::Tiles SlideRows::TilesOf(int64_t begin_token, int64_t end_token) const {
  return {.begin = TilesBefore(begin_token), .end = TilesBefore(end_token)};
}

std::vector<TileSpan> SlideRows::RunsOf(int64_t first, int64_t count) const {
  std::vector<TileSpan> runs;
  // Finds the last slide that begins at or before the tile; no slide is empty.
  int64_t low = 0, high = slides();
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (FirstTile(middle) <= first ? low : high) = middle;
  }
  for (int64_t slide = low; count > 0; ++slide) {
    const int64_t tiles = std::min(count, FirstTile(slide + 1) - first);
    runs.push_back({.first_token = FirstToken(slide) + class_tokens_ + first - FirstTile(slide),
                    .first_tile = first,
                    .tiles = tiles});
    first += tiles;
    count -= tiles;
  }
  return runs;
}

}  // namespace hilbert_ring
