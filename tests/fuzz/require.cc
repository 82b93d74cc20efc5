#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/target.h"

namespace hilbert_ring::fuzz {

void Require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "invariant broken: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

}  // namespace hilbert_ring::fuzz
