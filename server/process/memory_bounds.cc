#include "server/process/memory_bounds.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/saturating.h"
#include "server/process/process_memory.h"
#include "server/process/settings.h"

namespace hilbert_ring::server {
namespace {

// Messages of callers, messages of workers, and MembershipMemory's eighth.
constexpr int kTransportEighths = 8 + 8 + 1;

struct Setting {
  const char* flag;  // or a name, without a flag
  int64_t CoordinatorSettings::*bytes;
  int eighths;
};

constexpr Setting kSettings[] = {
    {"--waiting-memory", &CoordinatorSettings::waiting_memory_bytes, 8},
    {"--transport-memory", &CoordinatorSettings::transport_memory_bytes, kTransportEighths},
    {"--copy-memory", &CoordinatorSettings::copy_memory_bytes, 8},
    {"--stream-memory", &CoordinatorSettings::stream_memory_bytes, 8},
    {"--total-order-memory-limit", &CoordinatorSettings::total_order_memory_limit_bytes, 8},
    {"order cache", &CoordinatorSettings::order_cache_bytes, 8}};

int64_t Allowed(int64_t bytes, int eighths) {
  return SaturatingAdd(SaturatingMultiply(bytes / 8, eighths), bytes % 8 * eighths / 8);
}

absl::Status TooMuch(const std::string& flags, int64_t bytes, int64_t most, int64_t usable) {
  return absl::InvalidArgumentError(absl::StrCat("memory of ", flags, " is ", bytes,
                                                 " bytes, must be at most ", most, " of the ",
                                                 usable, " that this process may use"));
}

}  // namespace

absl::Status FitMemoryBounds(int64_t usable_bytes, std::span<MemoryBound> bounds) {
  int64_t given = 0, by_default = 0, least = kProcessBytes;
  std::vector<std::string> flags;
  for (const MemoryBound& bound : bounds) {
    const int64_t allowed = Allowed(bound.bytes, bound.eighths);
    if (!bound.given) {
      by_default += allowed;
      least += Allowed(bound.bytes / kLeastPart, bound.eighths);
      continue;
    }
    if (allowed > 0) flags.push_back(bound.flag);
    given = SaturatingAdd(given, allowed);
  }
  if (usable_bytes < least) {
    return absl::InvalidArgumentError(absl::StrCat(
        "memory of this process is limited to ", usable_bytes, " bytes, must be at least ", least));
  }
  if (given > usable_bytes - least) {
    return TooMuch(absl::StrJoin(flags, " and "), given, usable_bytes - least, usable_bytes);
  }
  const int64_t room = usable_bytes - kProcessBytes - given;
  if (by_default <= room) return absl::OkStatus();
  const double part = static_cast<double>(room) / static_cast<double>(by_default);
  for (MemoryBound& bound : bounds) {
    if (bound.given) continue;
    bound.bytes = std::max(bound.bytes / kLeastPart,
                           static_cast<int64_t>(part * static_cast<double>(bound.bytes)));
  }
  return absl::OkStatus();
}

int64_t MembershipMemory(const CoordinatorSettings& settings) {
  constexpr int64_t kLeastBytes = int64_t{32} << 20;  // a part of kProcessBytes
  return std::max(kLeastBytes, settings.transport_memory_bytes / 8);
}

std::string FitMemory(const CLI::App& app, CoordinatorSettings& settings) {
  std::vector<MemoryBound> bounds;
  for (const Setting& setting : kSettings) {
    const CLI::Option* const option = app.get_option_no_throw(setting.flag);
    bounds.push_back({.flag = setting.flag,
                      .bytes = settings.*setting.bytes,
                      .given = option != nullptr && option->count() > 0,
                      .eighths = setting.eighths});
  }
  const absl::Status status = FitMemoryBounds(UsableMemoryBytes(), bounds);
  if (!status.ok()) return std::string(status.message());
  for (size_t i = 0; i < bounds.size(); ++i) settings.*kSettings[i].bytes = bounds[i].bytes;
  return "";
}

std::string MemoryLine(const CoordinatorSettings& settings) {
  std::vector<std::string> words;
  int64_t sum = kProcessBytes;
  for (const Setting& setting : kSettings) {
    const int64_t bytes = settings.*setting.bytes;
    sum = SaturatingAdd(sum, Allowed(bytes, setting.eighths));
    words.push_back(absl::StrCat(setting.flag, "=", bytes >> 20, "MiB"));
  }
  return absl::StrCat("memory is bounded to ", sum >> 20, " MiB of the ", UsableMemoryBytes() >> 20,
                      " that this process may use: ", absl::StrJoin(words, " "));
}

}  // namespace hilbert_ring::server
