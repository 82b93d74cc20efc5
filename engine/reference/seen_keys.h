// The keys that one token's query attends to: the definition's segments, dilations and offsets.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/spec/job_spec.h"

namespace hilbert_ring {

class Permutation;

std::vector<int64_t> BranchesOf(const JobSpec& spec, int64_t head);

class SeenKeys {
 public:
  // Both outlive it.
  SeenKeys(const JobSpec& spec, const Permutation& order, int64_t token);

  // Calls `key` with each token that the head sees in the branch. Returns the number of zero keys.
  int64_t Visit(int64_t branch, int64_t head, const std::function<void(int64_t)>& key) const;

 private:
  const JobSpec& spec_;
  const Permutation& order_;
  const int64_t token_;
  int64_t slot_ = 0;
  Sequence sequence_;
};

}  // namespace hilbert_ring
