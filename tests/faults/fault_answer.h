// What the result of a fault job has to be.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/spec/job_spec.h"
#include "tests/engine/run_engine.h"

namespace hilbert_ring::testing {

// Thread-safe.
class FaultAnswer {
 public:
  virtual ~FaultAnswer() = default;
  // Empty, or what is wrong.
  virtual std::string Mismatch(const EngineResult& result) const = 0;
};

// Every row by the definition, each within its own tolerance.
absl::StatusOr<std::shared_ptr<const FaultAnswer>> AnswerByDefinition(const JobSpec& spec,
                                                                      const EngineInputs& inputs);

// For jobs too long for that: every row of OUT and of LSE has the bits of the undisturbed result or
// of another ring's, which merges partial results in another order; rows that had left before a
// fault are of the ring that was lost. Fails where rows drawn from the undisturbed result are not
// by the definition. other_rings: their numbers of workers, the likeliest first; each runs here
// when a result first needs it.
absl::StatusOr<std::shared_ptr<const FaultAnswer>> AnswerOfRings(const JobSpec& spec,
                                                                 EngineInputs inputs,
                                                                 EngineResult undisturbed,
                                                                 std::vector<int> other_rings);

// OUT of zeros; of LSE that it is finite.
std::shared_ptr<const FaultAnswer> AnswerOfZeros();

}  // namespace hilbert_ring::testing
