#include "wire/server_address.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace hilbert_ring::wire {
namespace {

constexpr const char* kNameKinds[] = {
    "dns:", "ipv4:", "ipv6:", "unix:", "unix-abstract:", "vsock:", "xds:"};

// Empty, or what is wrong.
std::string Fault(std::string_view address) {
  if (address.empty()) return "is empty";
  if (std::any_of(address.begin(), address.end(), [](char c) { return absl::ascii_isspace(c); })) {
    return "has a space";
  }
  for (const char* kind : kNameKinds) {
    if (address.starts_with(kind)) return "";
  }
  if (const size_t scheme = address.find("://"); scheme != std::string_view::npos) {
    return absl::StrCat("has a scheme: leave out ", std::string(address.substr(0, scheme + 3)));
  }
  if (address.find('/') != std::string_view::npos) return "has a path";
  const size_t colon = address.rfind(':');
  const bool bracketed = address.front() == '[';
  if (bracketed && address.find(']') == std::string_view::npos) return "has no closing bracket";
  if (!bracketed && std::count(address.begin(), address.end(), ':') > 1) {
    return "has several colons: put an IPv6 address in brackets";
  }
  if (colon == std::string_view::npos || (bracketed && colon < address.find(']'))) {
    return "has no port";
  }
  if (colon == 0) return "has no host";
  int port = 0;
  const std::string digits(address.substr(colon + 1));
  if (!absl::SimpleAtoi(digits, &port) || port < 1 || port > 65535) {
    return absl::StrCat("has port \"", digits, "\", expected 1 to 65535");
  }
  return "";
}

}  // namespace

absl::Status CheckServerAddress(std::string_view flag, const std::string& address) {
  const std::string fault = Fault(address);
  if (fault.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(std::string(flag), ": \"", address, "\" ", fault,
                                                 "; expected HOST:PORT, such as localhost:8001"));
}

}  // namespace hilbert_ring::wire
