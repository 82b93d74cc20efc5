// One vector for each slide, from the rows that several ranks hold of it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/files/encoder_config.h"
#include "engine/model/files/layer_norm.h"
#include "engine/model/files/slide_rows.h"

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

// Of a map of attention: one number for each row, or one for each head of it.
enum class MapColumns { kMeanOfHeads, kHeads };

// How much of its slide's class token each row is, in one layer: the weights of the class token's
// attention (tests/golden/attention_map_oracle.py).
struct AttentionMapOutput {
  int64_t layer = 1;  // of [1, layers]
  MapColumns columns = MapColumns::kMeanOfHeads;
};

struct EncoderOutputs {
  // Of [0, layers], in the order of the result; may repeat. 0 is the input of the first layer.
  std::vector<int64_t> states;
  FinalNorm final_norm = FinalNorm::kApplied;
  Pooling pooling = Pooling::kNone;
  std::optional<AttentionMapOutput> attention_map;
};

// Numbers of a row of the map; 0 where none is wanted.
int64_t MapColumnsOf(const EncoderConfig& config, const EncoderOutputs& outputs);

// OK, or INVALID_ARGUMENT and OUT_OF_RANGE, naming field, value and limit: no states or too many, a
// state that the model does not have, pooling of a model without the norm behind it, a layer
// of the map that the model does not have, or pooling or a map of a class token without one.
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
  // pooling: kMean or kClass.
  SlidePool(const SlideRows& slides, Pooling pooling, int64_t dim);

  void Add(const PooledPart& part);

  // The means after the model's norm behind pooling, [slides, dim]. INVALID_ARGUMENT: rows of a
  // slide have not come.
  absl::StatusOr<std::vector<float>> Finish(const LayerNorm& norm) const;

 private:
  int64_t dim_;
  std::vector<int64_t> rows_;     // of each slide
  std::vector<int64_t> to_come_;  // of these
  std::vector<double> sums_;
};

}  // namespace hilbert_ring
