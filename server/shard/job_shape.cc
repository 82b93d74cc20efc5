#include "server/shard/job_shape.h"

namespace hilbert_ring::server {

std::vector<int64_t> JobShape::UnsentRows(const Shards& shards, int rank) const {
  std::vector<int64_t> unsent;
  if (slides == nullptr || slides->class_tokens() == 0) return unsent;
  for (const ShardRange& range : shards.OfRank(rank)) {
    if (range.begin == range.end) continue;
    for (int64_t slide = slides->SlideOf(range.begin); slide < slides->slides(); ++slide) {
      const int64_t token = slides->FirstToken(slide);
      if (token >= range.end) break;
      if (token >= range.begin) unsent.push_back(range.LocalRow(token));
    }
  }
  return unsent;
}

}  // namespace hilbert_ring::server
