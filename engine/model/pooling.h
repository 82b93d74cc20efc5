// One vector for each slide, from the rows that several ranks hold of it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/encoder_config.h"
#include "engine/model/layer_norm.h"

namespace hilbert_ring {

enum class Pooling {
  kNone,   // every row leaves, class tokens included
  kClass,  // the class token's row
  kMean,   // the mean of all rows but the class token's
};

// Whether a state passes the model's norm behind its last layer (encoder.layer_norm, where it has
// one) before it leaves. The published slide encoder applies it where it gives the last layer alone
// and skips it where it gives all of them.
enum class FinalNorm { kApplied, kSkipped };

struct EncoderOutputs {
  std::vector<int64_t> states;  // rising, of [0, layers]: 0 is the input of the first layer
  FinalNorm final_norm = FinalNorm::kApplied;
  Pooling pooling = Pooling::kNone;
};

// OK, or INVALID_ARGUMENT and OUT_OF_RANGE, naming field, value and limit: no states, states that
// do not rise or are none of the model's, pooling of a model without the norm behind it, or of a
// class token that it does not have.
absl::Status CheckOutputs(const EncoderConfig& config, const EncoderOutputs& outputs);

// What one rank holds of the pooled rows of slides [first_slide, first_slide + rows.size()).
struct PooledPart {
  int64_t first_slide = 0;
  std::vector<int64_t> rows;  // that were summed, by slide
  std::vector<double> sums;   // [slides, dim]
};

// Takes the parts of all ranks, in any order of calls but always the same one for the same bits.
class SlidePool {
 public:
  SlidePool(int64_t slides, int64_t dim) : dim_(dim), rows_(slides), sums_(slides * dim) {}

  void Add(const PooledPart& part);

  // The means after the model's norm behind pooling, [slides, dim].
  std::vector<float> Finish(const LayerNorm& norm) const;

 private:
  int64_t dim_;
  std::vector<int64_t> rows_;
  std::vector<double> sums_;
};

}  // namespace hilbert_ring
