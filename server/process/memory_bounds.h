// Fits the coordinator's bounds of memory into the memory that its process may use.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace CLI {
class App;
}  // namespace CLI

namespace hilbert_ring::server {

struct CoordinatorSettings;
struct WorkerSettings;

// Memory besides the bounds: program, threads and connections. An idle coordinator takes 25 MiB.
inline constexpr int64_t kProcessBytes = int64_t{128} << 20;
inline constexpr int64_t kLeastPart = 64;  // a default is lowered to a 64th at most

struct MemoryBound {
  std::string flag;   // "--stream-memory"
  int64_t bytes = 0;  // the given value, or the default
  bool given = false;
  int eighths = 8;  // of `bytes` that the bound allows
};

// Lowers the bounds that were not given by one factor, until all bounds and kProcessBytes fit into
// `usable_bytes`. INVALID_ARGUMENT if the given bounds leave no room.
absl::Status FitMemoryBounds(int64_t usable_bytes, std::span<MemoryBound> bounds);

// Fits the settings' bounds into UsableMemoryBytes(). Returns an error message, or empty.
std::string FitMemory(const CLI::App& app, CoordinatorSettings& settings);
inline std::string FitMemory(const CLI::App& /*app*/, WorkerSettings& /*settings*/) { return ""; }

// Memory of received heartbeats that no handler has taken: an eighth of --transport-memory.
int64_t MembershipMemory(const CoordinatorSettings& settings);

std::string MemoryLine(const CoordinatorSettings& settings);  // for the log

}  // namespace hilbert_ring::server
