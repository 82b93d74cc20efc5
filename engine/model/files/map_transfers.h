// What travels for a map of attention: class tokens' queries and log-sum-exps, to the ranks that
// have keys which they see.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/files/encoder_plan.h"

namespace hilbert_ring {

// A class token's row that a rank needs of another.
struct MapTransfer {
  int64_t slide = 0;
  int from = 0, to = 0;
};

// As all ranks find them, in slide order. The plan is of a model with class tokens.
std::vector<MapTransfer> MapTransfers(const EncoderPlan& plan);

// Of a transfer: the query [embed_dim] of the compute type, then float32 lse [heads].
int64_t MapQueryBytes(const EncoderPlan& plan);
int64_t MapRowBytes(const EncoderPlan& plan);

// Rows that a rank holds for the exchange: one a slide, copied to be sent or received.
int64_t MapExchangeBytes(const EncoderPlan& plan, int rank);

// Phases that select the first slot of a segment, and so the class token.
bool SelectsFirst(const Phase& phase);

}  // namespace hilbert_ring
