// A stable sort of tokens by their keys.
#pragma once

#include <cstdint>
#include <vector>

namespace hilbert_ring {

struct KeyedToken {
  uint64_t key = 0;
  uint64_t token = 0;
};

// Sorts by key, stably. Tokens come in ascending order; keys have `key_bits` bits. `scratch` is
// reusable.
void SortByKey(int key_bits, std::vector<KeyedToken>& tokens, std::vector<KeyedToken>& scratch);

}  // namespace hilbert_ring
