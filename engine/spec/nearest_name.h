// What the writer of an unknown name meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hilbert_ring {

// The one of the names that takes the fewest characters inserted, left out, replaced or swapped
// with the next one; capitals, '-' and '_' make no difference. Empty when even that takes more than
// a third of the name's, and more than two.
std::string NearestName(std::string_view name, std::span<const std::string> names);

// "; the nearest known one is NAME", or nothing.
std::string NearestNameHint(std::string_view name, std::span<const std::string> names);

}  // namespace hilbert_ring
