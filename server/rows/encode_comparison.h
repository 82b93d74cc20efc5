// What workers said of rows of an encoder's job and sent of them, compared with what float64 makes
// of the model's weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/files/encode_job.h"
#include "engine/model/files/slide_rows.h"
#include "server/models/model_reader.h"
#include "server/rows/output_check.h"

namespace hilbert_ring::server {

// The rows of a job that are compared.
struct EncodeDraw {
  EncodeJob job;
  SlideRows rows;
  std::vector<int64_t> tokens;  // rising
  std::vector<int64_t> slides;  // of these tokens, rising
  int64_t layer = 0;            // that is computed from its input at the workers; 0: all layers are

  bool Has(int64_t token) const { return std::ranges::binary_search(tokens, token); }
};

// Rows of float32 [embed_dim], by token or slide, and state or place among the wanted states.
using RowsOfStates = std::map<std::pair<int64_t, int64_t>, std::vector<float>>;

struct EncodeAccount {
  RowsOfStates states;  // of the drawn tokens, by state, as the workers said
  RowsOfStates sent;    // STATES, by token and place
  RowsOfStates pooled;  // POOLED, by slide and place
};

// Errors of OutputCheck::Compare and ModelReader::Read.
absl::StatusOr<OutputCheck::Verdict> CompareRows(const EncodeDraw& draw,
                                                 const EncodeAccount& account, ModelReader& model,
                                                 const OutputCheck::Execution& execution);

}  // namespace hilbert_ring::server
