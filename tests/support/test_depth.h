// The amount that tests compute, by HILBERT_RING_TEST_DEPTH: `./dev test` sets it to fast or all;
// without it the depth is in between.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace hilbert_ring {

enum class TestDepth { kFast, kUsual, kAll };

inline TestDepth DepthOfTests() {
  const char* const text = std::getenv("HILBERT_RING_TEST_DEPTH");
  const std::string_view depth = text == nullptr ? "" : text;
  if (depth == "fast") return TestDepth::kFast;
  return depth == "all" ? TestDepth::kAll : TestDepth::kUsual;
}

template <typename T>
T AtDepth(T fast, T usual, T all) {
  switch (DepthOfTests()) {
    case TestDepth::kFast:
      return fast;
    case TestDepth::kUsual:
      return usual;
    case TestDepth::kAll:
      return all;
  }
  std::abort();
}

inline std::vector<std::string> SpreadOf(const std::vector<std::string>& names, size_t count) {
  std::vector<std::string> taken;
  const size_t step = count >= names.size() ? 1 : names.size() / count;
  for (size_t i = 0; i < names.size(); i += step) taken.push_back(names[i]);
  return taken;
}

// Fast tests take one kernel of each kind: the first, best instruction set, and the emulated ones.
inline std::vector<std::string> KernelsAtDepth(const std::vector<std::string>& kernels) {
  if (DepthOfTests() != TestDepth::kFast) return kernels;
  std::vector<std::string> taken;
  for (const std::string& kernel : kernels) {
    if (taken.empty() || !kernel.starts_with("cpu/") || kernel.ends_with("emulated"))
      taken.push_back(kernel);
  }
  return taken;
}

}  // namespace hilbert_ring
