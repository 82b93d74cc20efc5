// The coordinator's bounds of memory fit into the memory that its process may use.
//
//   MemoryBound bounds[] = {{"--stream-memory", given, true}, {"order cache", by_default}};
//   RETURN_IF_ERROR(FitMemoryBounds(UsableMemoryBytes(), bounds));  // lowers the order cache
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

// Memory that a process takes besides its bounds: its program, threads and connections. An idle
// coordinator had 25 MiB resident.
inline constexpr int64_t kProcessBytes = int64_t{128} << 20;
// A default is lowered to this part of itself, and no further.
inline constexpr int64_t kLeastPart = 64;

struct MemoryBound {
  std::string flag;   // "--stream-memory"
  int64_t bytes = 0;  // the given value, or the default of a machine with room for all defaults
  bool given = false;
  // Memory that the bound allows, in eighths of `bytes`.
  int eighths = 8;
};

// Lowers the bounds that were not given, all by the same factor, until all bounds and kProcessBytes
// are at most `usable_bytes`. InvalidArgument if the given bounds leave no room for that; the
// message names them.
absl::Status FitMemoryBounds(int64_t usable_bytes, std::span<MemoryBound> bounds);

// Fits the settings' bounds into UsableMemoryBytes(). The error, as a sentence; empty: no error.
std::string FitMemory(const CLI::App& app, CoordinatorSettings& settings);
inline std::string FitMemory(const CLI::App& /*app*/, WorkerSettings& /*settings*/) { return ""; }

// Memory of heartbeats that no handler has taken: an eighth of --transport-memory.
int64_t MembershipMemory(const CoordinatorSettings& settings);

// The bounds in MiB, for the log.
std::string MemoryLine(const CoordinatorSettings& settings);

}  // namespace hilbert_ring::server
