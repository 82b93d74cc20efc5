#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace hilbert_ring::testing {

inline bool Await(const std::function<bool()>& holds,
                  std::chrono::milliseconds limit = std::chrono::seconds(30)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace hilbert_ring::testing
