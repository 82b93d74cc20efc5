// Suggests a known name for an unknown one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hilbert_ring {

// The name with the least edit distance (with transpositions; ignores case, '-' equals '_'). Empty
// if it exceeds 2 and a third of the name.
std::string NearestName(std::string_view name, std::span<const std::string> names);

// "; the nearest known one is NAME", or "".
std::string NearestNameHint(std::string_view name, std::span<const std::string> names);

}  // namespace hilbert_ring
