#include "server/process/trace_context.h"

#include <algorithm>

namespace hilbert_ring::server {
namespace {

constexpr char kKey[] = "traceparent";
constexpr size_t kTraceBegin = 3, kTraceDigits = 32, kParentBegin = 36, kParentDigits = 16;
constexpr size_t kFlagsBegin = 53, kBytes = 55;

bool IsHex(std::string_view digits) {
  return std::all_of(digits.begin(), digits.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsZero(std::string_view digits) {
  return digits.find_first_not_of('0') == std::string_view::npos;
}

}  // namespace

bool IsTraceparent(std::string_view text) {
  if (text.size() < kBytes) return false;
  const std::string_view version = text.substr(0, 2);
  if (!IsHex(version) || version == "ff") return false;
  if (text.size() > kBytes && (version == "00" || text[kBytes] != '-')) return false;
  const std::string_view trace = text.substr(kTraceBegin, kTraceDigits);
  const std::string_view parent = text.substr(kParentBegin, kParentDigits);
  return text[2] == '-' && text[kParentBegin - 1] == '-' && text[kFlagsBegin - 1] == '-' &&
         IsHex(trace) && !IsZero(trace) && IsHex(parent) && !IsZero(parent) &&
         IsHex(text.substr(kFlagsBegin, 2));
}

std::string TraceparentOf(const grpc::ServerContextBase& context) {
  const auto found = context.client_metadata().find(kKey);
  if (found == context.client_metadata().end()) return "";
  const std::string_view text(found->second.data(), found->second.size());
  return IsTraceparent(text) ? std::string(text.substr(0, kBytes)) : "";
}

}  // namespace hilbert_ring::server
