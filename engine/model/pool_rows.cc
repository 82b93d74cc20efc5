#include "engine/model/pool_rows.h"

#include <algorithm>
#include <vector>

#include "engine/base/first_error.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring {
namespace {

// A thread sums a piece's rows in order; a slide's pieces are added in order.
struct SlidePiece {
  int64_t slide = 0;      // in the part
  int64_t local_row = 0;  // in the rank
  int64_t rows = 0;
};

std::vector<SlidePiece> PiecesOf(const PoolTask& task, PooledPart& part) {
  const SlideRows& slides = task.plan.rows;
  std::vector<SlidePiece> pieces;
  const auto& ranges = task.plan.attention.shards.OfRank(task.rank);
  if (ranges.empty()) return pieces;
  const SlideRange of_rank = SlidesOf(task.plan, task.rank);
  part.first_slide = of_rank.begin;
  part.rows.resize(static_cast<size_t>(of_rank.end - of_rank.begin));
  for (const ShardRange& range : ranges) {
    for (int64_t slide = slides.SlideOf(range.begin); slide < slides.slides(); ++slide) {
      const int64_t first = slides.FirstToken(slide);
      if (first >= range.end) break;
      const int64_t tiles = first + slides.class_tokens();
      const bool class_row = task.pooling == Pooling::kClass;
      const int64_t begin = std::max(range.begin, class_row ? first : tiles);
      const int64_t end = std::min(range.end, class_row ? tiles : slides.FirstToken(slide + 1));
      const int64_t of_part = slide - part.first_slide;
      part.rows[of_part] += std::max<int64_t>(0, end - begin);
      for (int64_t token = begin; token < end; token += kPooledPieceRows) {
        pieces.push_back({.slide = of_part,
                          .local_row = range.LocalRow(token),
                          .rows = std::min(kPooledPieceRows, end - token)});
      }
    }
  }
  return pieces;
}

}  // namespace

absl::StatusOr<PooledPart> PoolRows(const PoolTask& task, RankRows& rows, ThreadPool& pool) {
  const int64_t width = task.plan.config.embed_dim;
  PooledPart part;
  const std::vector<SlidePiece> pieces = PiecesOf(task, part);
  part.sums.resize(part.rows.size() * width);
  std::vector<double> sums;
  FirstError error;
  for (size_t first = 0; first < pieces.size(); first += kPooledPiecesAtOnce) {
    const size_t count = std::min<size_t>(kPooledPiecesAtOnce, pieces.size() - first);
    sums.assign(count * width, 0.0);
    pool.Run(static_cast<int64_t>(count), 1, [&](int thread, int64_t index, int64_t /*end*/) {
      const SlidePiece& piece = pieces[first + index];
      return error.Note(rows.AddSums(thread, {.first = piece.local_row, .count = piece.rows},
                                     task.norm, sums.data() + index * width));
    });
    RETURN_IF_ERROR(error.Take());
    for (size_t index = 0; index < count; ++index) {
      double* const into = part.sums.data() + pieces[first + index].slide * width;
      for (int64_t x = 0; x < width; ++x) into[x] += sums[index * width + x];
    }
  }
  return part;
}

}  // namespace hilbert_ring
