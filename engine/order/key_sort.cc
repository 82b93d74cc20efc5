#include "engine/order/key_sort.h"

#include <algorithm>
#include <array>

namespace hilbert_ring {
namespace {

constexpr int kDigitBits = 11;
constexpr size_t kDigits = size_t{1} << kDigitBits;

// Shorter lists are sorted by comparisons. Digits against comparisons with 24-bit keys on an EPYC
// (Zen 3): 27 against 32 ns a token for 256 tokens, 19 against 46 for 1024.
constexpr size_t kMinRadixTokens = 256;

}  // namespace

void SortByKey(int key_bits, std::vector<KeyedToken>& tokens, std::vector<KeyedToken>& scratch) {
  if (tokens.size() < kMinRadixTokens) {
    std::sort(tokens.begin(), tokens.end(), [](const KeyedToken& a, const KeyedToken& b) {
      return a.key != b.key ? a.key < b.key : a.token < b.token;
    });
    return;
  }
  scratch.resize(tokens.size());
  for (int shift = 0; shift < key_bits; shift += kDigitBits) {
    const auto digit = [shift](const KeyedToken& t) { return t.key >> shift & (kDigits - 1); };
    std::array<size_t, kDigits> place = {};
    for (const KeyedToken& t : tokens) ++place[digit(t)];
    if (place[digit(tokens[0])] == tokens.size()) continue;
    size_t begin = 0;
    for (size_t& p : place) {
      const size_t count = p;
      p = begin;
      begin += count;
    }
    for (const KeyedToken& t : tokens) scratch[place[digit(t)]++] = t;
    tokens.swap(scratch);
  }
}

}  // namespace hilbert_ring
