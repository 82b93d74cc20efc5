// Rows of an encoder's job, drawn at random, that are computed again in float64 from the model's
// own weights:
//
//   EncodeCheck check(job, folder, {.rows = 16, .seed = seed});
//   check.Describe(open);                            // which rows the workers tell all states of
//   check.TakeState(state);
//   check.Take(chunk, payload, worker);              // outputs on their way to the client
//   auto verdict = check.Compare(execution);
//
// Where the slides of the drawn rows are small enough, they pass all layers here, from their tiles
// on. Else one layer does, drawn too: the workers keep its input as an output, which the drawn
// rows' results must follow from; their first states must follow from their tiles, and what the
// client gets from their last ones.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/model/files/encode_job.h"
#include "engine/model/files/encoder_folder.h"
#include "engine/model/files/slide_rows.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/rows/output_check.h"

namespace hilbert_ring::server {

struct EncodeCheckOptions {
  int64_t rows = 0;
  uint64_t seed = 0;
  // Multiplications that all layers of the drawn rows' slides may take: a second or two.
  double most_products = 1e9;
};

class EncodeCheck : public OutputCheck {
 public:
  // model: needed by Compare alone.
  EncodeCheck(const EncodeJob& job, std::shared_ptr<const EncoderFolder> model,
              const EncodeCheckOptions& options);

  // Whose input the workers keep; 0: of none, for all layers are computed here.
  int64_t layer() const { return layer_; }
  const std::vector<int64_t>& tokens() const { return tokens_; }  // rising

  void Describe(v1::RunOpen& open) const;

  // What the workers of an execution before said is forgotten.
  void BeginExecution();

  // INTERNAL: a row that was not drawn, a state that there is not, a wrong number of bytes, or one
  // that came before. Thread-safe.
  absl::Status TakeState(const v1::CheckedState& state);

  void Take(const v1::OutputChunk& chunk, std::string_view payload,
            const std::shared_ptr<const Member>& worker) override;
  std::span<const int64_t> wanted() const override { return tokens_; }
  absl::StatusOr<Verdict> Compare(const Execution& execution) const override;

 private:
  class Comparison;
  using Place = std::pair<int64_t, int64_t>;  // token or slide, state

  bool Drawn(int64_t token) const { return std::ranges::binary_search(tokens_, token); }
  double ProductsOfSlide(int64_t tokens) const;

  const EncodeJob job_;
  const std::shared_ptr<const EncoderFolder> model_;
  const SlideRows rows_;
  const std::vector<int64_t> tokens_;
  std::vector<int64_t> slides_;  // of these tokens, rising
  int64_t layer_ = 0;

  mutable Mutex mutex_;
  std::map<Place, std::vector<float>> states_ ABSL_GUARDED_BY(mutex_);  // as the workers said
  std::map<Place, std::vector<float>> sent_ ABSL_GUARDED_BY(mutex_);    // STATES, by token
  std::map<Place, std::vector<float>> pooled_ ABSL_GUARDED_BY(mutex_);  // POOLED, by slide
};

}  // namespace hilbert_ring::server
