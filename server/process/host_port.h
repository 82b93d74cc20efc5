// "host:port", with brackets round an IPv6 address.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::server {

inline std::string HostPort(const std::string& host, int port) {
  const bool bare_ipv6 = host.find(':') != std::string::npos && host.front() != '[';
  return absl::StrCat(bare_ipv6 ? "[" : "", host, bare_ipv6 ? "]:" : ":", port);
}

// An address that means "all of this machine's": to listen on, not to be reached at.
inline bool IsWildcard(const std::string& host) {
  return host == "0.0.0.0" || host == "::" || host == "[::]";
}

}  // namespace hilbert_ring::server
