// Pools each slide's rows, which several ranks hold, to a vector.
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
  kMean,   // the mean of the slide's other rows
};

// Whether states pass encoder.layer_norm. The published slide encoder applies it to the last layer,
// but skips it if all layers are requested.
enum class FinalNorm { kApplied, kSkipped };

// Columns of an attention map: the heads' mean, or each head.
enum class MapColumns { kMeanOfHeads, kHeads };

// An attention map of one layer (tests/golden/attention_map_oracle.py).
struct AttentionMapOutput {
  int64_t layer = 1;  // in [1, layers]
  MapColumns columns = MapColumns::kMeanOfHeads;
};

struct EncoderOutputs {
  // In [0, layers], in the order of the result; may repeat. State 0 is the first layer's input.
  std::vector<int64_t> states;
  FinalNorm final_norm = FinalNorm::kApplied;
  Pooling pooling = Pooling::kNone;
  std::optional<AttentionMapOutput> attention_map;
};

int64_t MapColumnsOf(const EncoderConfig& config, const EncoderOutputs& outputs);

// OK, or INVALID_ARGUMENT and OUT_OF_RANGE, naming field, value and limit.
absl::Status CheckOutputs(const EncoderConfig& config, const EncoderOutputs& outputs);

// A rank's sums for slides [first_slide, first_slide + rows.size()).
struct PooledPart {
  int64_t first_slide = 0;
  std::vector<int64_t> rows;  // summed, by slide
  std::vector<double> sums;   // [slides, dim]
};

// Adds the parts of all ranks. The bits of the result depend on the order of calls.
class SlidePool {
 public:
  // pooling: kMean or kClass.
  SlidePool(const SlideRows& slides, Pooling pooling, int64_t dim);

  void Add(const PooledPart& part);

  // The means after `norm`, [slides, dim]. INVALID_ARGUMENT: rows of a slide are missing.
  absl::StatusOr<std::vector<float>> Finish(const LayerNorm& norm) const;

 private:
  int64_t dim_;
  std::vector<int64_t> rows_;     // by slide
  std::vector<int64_t> to_come_;  // by slide: rows not yet added
  std::vector<double> sums_;
};

}  // namespace hilbert_ring
