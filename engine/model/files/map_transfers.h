// Transfers of class tokens' queries and log-sum-exps to the ranks whose keys they see.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/files/encoder_plan.h"

namespace hilbert_ring {

// A class token's row that rank `to` needs of rank `from`.
struct MapTransfer {
  int64_t slide = 0;
  int from = 0, to = 0;
};

// The same list on all ranks, in slide order. The plan has class tokens.
std::vector<MapTransfer> MapTransfers(const EncoderPlan& plan);

// Bytes of a transfer: the query [embed_dim] of the compute type, then float32 lse [heads].
int64_t MapQueryBytes(const EncoderPlan& plan);
int64_t MapRowBytes(const EncoderPlan& plan);

// Memory of the class-token rows that a rank sends or receives.
int64_t MapExchangeBytes(const EncoderPlan& plan, int rank);

// Returns whether a phase selects the first slot of a segment, and so the class token.
bool SelectsFirst(const Phase& phase);

}  // namespace hilbert_ring
