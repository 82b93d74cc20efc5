#include "engine/order/stored_order.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/order/curve.h"
#include "engine/order/key_sort.h"

namespace hilbert_ring {
namespace {

constexpr int64_t kMaxShortTokens = int64_t{1} << 32;

// Tokens that are copied or keyed at once, so that buffers stay in the cache.
constexpr int64_t kChunk = 4096;

template <typename Index>
class StoredOrder : public Permutation {
 public:
  explicit StoredOrder(std::vector<Index> token_of_slot)
      : token_of_slot_(std::move(token_of_slot)), slot_of_token_(token_of_slot_.size()) {
    for (size_t slot = 0; slot < token_of_slot_.size(); ++slot) {
      slot_of_token_[token_of_slot_[slot]] = static_cast<Index>(slot);
    }
  }

  int64_t resident_bytes() const override {
    return StoredOrderBytes(static_cast<int64_t>(token_of_slot_.size()));
  }

  void Tokens(int64_t first_slot, std::span<int64_t> tokens) const override {
    std::copy_n(token_of_slot_.begin() + first_slot, tokens.size(), tokens.begin());
  }

  void Slots(int64_t first_token, std::span<int64_t> slots) const override {
    std::copy_n(slot_of_token_.begin() + first_token, slots.size(), slots.begin());
  }

 private:
  std::vector<Index> token_of_slot_;
  std::vector<Index> slot_of_token_;
};

template <typename Index>
std::unique_ptr<const Permutation> Store(const Permutation& order, int64_t tokens) {
  std::vector<Index> token_of_slot(tokens);
  std::vector<int64_t> chunk(std::min(kChunk, tokens));
  for (int64_t slot = 0; slot < tokens; slot += kChunk) {
    const std::span<int64_t> part(chunk.data(), std::min(kChunk, tokens - slot));
    order.Tokens(slot, part);
    std::copy(part.begin(), part.end(), token_of_slot.begin() + slot);
  }
  return std::make_unique<const StoredOrder<Index>>(std::move(token_of_slot));
}

absl::Status OutOfRange(int axes, std::span<const int64_t> coords, int64_t limit) {
  const auto bad = std::find_if(coords.begin(), coords.end(),
                                [limit](int64_t c) { return c < 0 || c >= limit; });
  const int64_t place = bad - coords.begin();
  return absl::OutOfRangeError(absl::StrCat("ordering.coords[", place / axes, "][", place % axes,
                                            "] is ", *bad, ", must be 0 to ", limit - 1));
}

template <typename Index>
std::unique_ptr<const Permutation> Sort(Curve curve, int axes, std::span<const Sequence> sequences,
                                        std::span<const int64_t> coords) {
  std::vector<Index> token_of_slot(coords.size() / axes);
  std::vector<KeyedToken> tokens, scratch;
  std::vector<uint64_t> keys;
  for (const Sequence& sequence : sequences) {
    const auto own = coords.subspan(sequence.begin * axes, sequence.length * axes);
    const auto largest = static_cast<uint64_t>(*std::max_element(own.begin(), own.end()));
    const int bits = std::max(1, static_cast<int>(std::bit_width(largest)));
    tokens.resize(sequence.length);
    for (int64_t begin = 0; begin < sequence.length; begin += kChunk) {
      const int64_t count = std::min(kChunk, sequence.length - begin);
      keys.resize(count);
      CurveKeys(curve, axes, bits, own.subspan(begin * axes, count * axes), keys);
      for (int64_t i = 0; i < count; ++i) {
        tokens[begin + i] = {keys[i], static_cast<uint64_t>(sequence.begin + begin + i)};
      }
    }
    SortByKey(bits * axes, tokens, scratch);
    std::transform(tokens.begin(), tokens.end(), token_of_slot.begin() + sequence.begin,
                   [](const KeyedToken& t) { return static_cast<Index>(t.token); });
  }
  return std::make_unique<const StoredOrder<Index>>(std::move(token_of_slot));
}

}  // namespace

int64_t StoredOrderBytes(int64_t tokens) {
  const int64_t index_bytes = tokens <= kMaxShortTokens ? sizeof(uint32_t) : sizeof(uint64_t);
  return 2 * index_bytes * tokens;
}

std::unique_ptr<const Permutation> StoreOrder(const Permutation& order, int64_t tokens) {
  return tokens <= kMaxShortTokens ? Store<uint32_t>(order, tokens)
                                   : Store<uint64_t>(order, tokens);
}

absl::StatusOr<std::unique_ptr<const Permutation>> StoreCoordinateOrder(
    Curve curve, int axes, std::span<const Sequence> sequences, std::span<const int64_t> coords) {
  const int64_t limit = int64_t{1} << (axes == 2 ? 32 : 21);
  uint64_t joined = 0;  // a negative coordinate sets the highest bit
  for (const int64_t c : coords) joined |= static_cast<uint64_t>(c);
  if (joined >= static_cast<uint64_t>(limit)) return OutOfRange(axes, coords, limit);
  const auto tokens = static_cast<int64_t>(coords.size()) / axes;
  return tokens <= kMaxShortTokens ? Sort<uint32_t>(curve, axes, sequences, coords)
                                   : Sort<uint64_t>(curve, axes, sequences, coords);
}

}  // namespace hilbert_ring
