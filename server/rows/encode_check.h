// Rows of an encoder's job, drawn at random, that are computed again in float64 from the model's
// own weights:
//
//   EncodeCheck check(job, model, {.rows = 16, .seed = seed});
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
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/model/files/encode_job.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/models/model_reader.h"
#include "server/rows/encode_comparison.h"
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
  // model: Compare's; may be null where nobody calls that.
  EncodeCheck(const EncodeJob& job, std::unique_ptr<ModelReader> model,
              const EncodeCheckOptions& options);

  // Whose input the workers keep; 0: of none, for all layers are computed here.
  int64_t layer() const { return draw_.layer; }
  const std::vector<int64_t>& tokens() const { return draw_.tokens; }  // rising

  void Describe(v1::RunOpen& open) const;

  // What the workers of an execution before said is forgotten.
  void BeginExecution();

  // INTERNAL: a row that was not drawn, a state that there is not, a wrong number of bytes, or one
  // that came before. Thread-safe.
  absl::Status TakeState(const v1::CheckedState& state);

  void Take(const v1::OutputChunk& chunk, std::string_view payload,
            const std::shared_ptr<const Member>& worker) override;
  std::span<const int64_t> wanted() const override { return draw_.tokens; }
  absl::StatusOr<Verdict> Compare(const Execution& execution) const override;

 private:
  const EncodeDraw draw_;
  const std::unique_ptr<ModelReader> model_;
  mutable Mutex mutex_;
  EncodeAccount account_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::server
