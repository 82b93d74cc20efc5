// Rows and tiles of a job: slides follow each other, each with its class token, if any, first.
//
//   slide 0: [class] tile 0  tile 1  tile 2   slide 1: [class] tile 3  ...
//   token        0      1       2       3                  4      5
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hilbert_ring {

// Token first_token + i is tile first_tile + i if i < tiles.
struct TileSpan {
  int64_t first_token = 0;
  int64_t first_tile = 0;
  int64_t tiles = 0;
};

class SlideRows {
 public:
  // slide_tiles: at least 1 for each slide. class_tokens: 0 or 1 for each slide.
  SlideRows(std::span<const int64_t> slide_tiles, int64_t class_tokens);

  int64_t slides() const { return static_cast<int64_t>(first_token_.size()) - 1; }
  int64_t tokens() const { return first_token_.back(); }
  int64_t tiles() const { return FirstTile(slides()); }
  int64_t class_tokens() const { return class_tokens_; }

  // The slide of a token in [0, tokens()). O(log slides).
  int64_t SlideOf(int64_t token) const;

  // A slide's tokens are [FirstToken(slide), FirstToken(slide + 1)), class token first.
  int64_t FirstToken(int64_t slide) const { return first_token_[slide]; }
  int64_t FirstTile(int64_t slide) const { return first_token_[slide] - slide * class_tokens_; }

  std::vector<TileSpan> RunsOf(int64_t first, int64_t count) const;

  struct Tiles {
    int64_t begin = 0, end = 0;
  };
  Tiles TilesOf(int64_t begin_token, int64_t end_token) const;

 private:
  int64_t TilesBefore(int64_t token) const;

  int64_t class_tokens_;
  std::vector<int64_t> first_token_;  // [slides + 1]
};

}  // namespace hilbert_ring
