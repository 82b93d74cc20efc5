// A stable sort of tokens by their keys.
#pragma once

#include <cstdint>
#include <vector>

namespace hilbert_ring {

struct KeyedToken {
  uint64_t key = 0;
  uint64_t token = 0;
};

// Sorts by key; tokens come in ascending order, and those of equal key stay so. Only the lowest
// key_bits of a key are set. `scratch` is overwritten; pass the same one to save allocations.
void SortByKey(int key_bits, std::vector<KeyedToken>& tokens, std::vector<KeyedToken>& scratch);

}  // namespace hilbert_ring
