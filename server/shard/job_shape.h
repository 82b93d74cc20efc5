// The rows of a job: their number and size by tensor, and their slots.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/model/files/slide_rows.h"
#include "engine/plan/shards.h"
#include "engine/spec/job_spec.h"
#include "engine/spec/tensor.h"

namespace hilbert_ring::server {

struct JobShape {
  JobShape(const JobSpec& attention) : spec(attention), rows(attention) {}
  JobShape(const JobSpec& attention, const RowSizes& sizes,
           std::shared_ptr<const SlideRows> tiles_of_slides)
      : spec(attention), rows(sizes), slides(std::move(tiles_of_slides)) {}

  JobSpec spec;                             // of the attention
  RowSizes rows;                            // of all tensors of the job
  std::shared_ptr<const SlideRows> slides;  // null without an encoder

  int64_t RowsOf(TensorKind tensor) const {
    const bool tiles = tensor == TensorKind::kTiles || tensor == TensorKind::kTileCoords;
    if (tiles && slides != nullptr) return slides->tiles();
    const bool keys =
        tensor == TensorKind::kK || tensor == TensorKind::kV || tensor == TensorKind::kBiasCoords;
    return keys ? KeyTokens(spec) : spec.tokens;
  }

  int64_t BytesOf(std::span<const TensorKind> tensors) const {
    int64_t bytes = 0;
    for (const TensorKind tensor : tensors) bytes += RowsOf(tensor) * rows[tensor];
    return bytes;
  }

  // Returns whether row i of the tensor has slot i, or is query i of a rectangular job. Without
  // slides. Outputs are as Q.
  bool InOrder(TensorKind tensor) const {
    return !spec.ordering || (tensor == TensorKind::kQ &&
                              (spec.ordering->scope == OrderScope::kKv || IsRectangular(spec)));
  }

  // Local rows that no client sends (class tokens), rising.
  std::vector<int64_t> UnsentRows(const Shards& shards, int rank) const;
};

}  // namespace hilbert_ring::server
