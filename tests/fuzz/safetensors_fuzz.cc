// A file of weights gives an error that names the wrong field, or tensors whose bytes tile the file
// behind its header and match their shapes and types.
#include <span>

#include "engine/model/files/safetensors.h"
#include "tests/fuzz/target.h"

namespace hilbert_ring::fuzz {
namespace {

constexpr size_t kMaxMessage = 2048;  // bytes of an error

}  // namespace

void Safetensors(Bytes input) {
  const auto entries = ParseSafetensors(std::as_bytes(input), static_cast<int64_t>(input.size()));
  if (!entries.ok()) {
    Require(absl::IsInvalidArgument(entries.status()), "a parse error is INVALID_ARGUMENT");
    Require(entries.status().message().size() <= kMaxMessage,
            "a parse error has a message of bounded length");
    return;
  }
  const auto size = static_cast<int64_t>(input.size());
  int64_t bytes = 0;
  std::vector<bool> taken(input.size());
  for (const SafetensorsEntry& entry : *entries) {
    Require(entry.begin >= 8 && entry.begin <= entry.end && entry.end <= size,
            "a tensor lies within its file");
    bytes += entry.end - entry.begin;
    for (int64_t at = entry.begin; at < entry.end; ++at) {
      Require(!taken[at], "no byte belongs to two tensors");
      taken[at] = true;
    }
    Require(entry.elements() >= 0 && entry.elements() <= entry.end - entry.begin,
            "an element has a byte at least");
  }
  int64_t header = 0;
  for (int i = 0; i < 8; ++i) header |= int64_t{input[i]} << (8 * i);
  Require(8 + header + bytes == size, "every byte behind the header belongs to a tensor");
  Require(std::ranges::is_sorted(*entries, {}, &SafetensorsEntry::name), "tensors come by name");
}

}  // namespace hilbert_ring::fuzz
