// "host:port", with brackets round an IPv6 address.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::server {

inline std::string HostPort(const std::string& host, int port) {
  const bool ipv6 = host.find(':') != std::string::npos;
  return absl::StrCat(ipv6 ? "[" : "", host, ipv6 ? "]:" : ":", port);
}

inline std::string WithoutBrackets(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

inline bool IsWildcard(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

}  // namespace hilbert_ring::server
