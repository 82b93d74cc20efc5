#include "wire/server_address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "wire/control_characters.h"

namespace hilbert_ring::wire {
namespace {

// gRPC's name kinds without host and port.
constexpr const char* kOtherKinds[] = {"unix:", "unix-abstract:", "vsock:", "xds:"};

// Removes the start and returns true if the text has it.
bool Consume(std::string_view& text, std::string_view start) {
  if (!text.starts_with(start)) return false;
  text.remove_prefix(start.size());
  return true;
}

std::string FaultOfPort(std::string_view digits) {
  int port = 0;
  const char* const end = digits.data() + digits.size();
  const bool read = std::from_chars(digits.data(), end, port).ptr == end && !digits.empty();
  if (read && digits.front() != '0' && port >= 1 && port <= 65535) return "";
  return absl::StrCat("has port \"", std::string(digits), "\", expected 1 to 65535");
}

// text: the content of the brackets, with or without a zone.
bool IsIpv6(std::string_view text) {
  std::array<unsigned char, sizeof(in6_addr)> bytes;
  const size_t zone = std::min(text.find('%'), text.size());
  return zone + 1 != text.size() &&
         inet_pton(AF_INET6, std::string(text.substr(0, zone)).c_str(), bytes.data()) == 1;
}

std::string FaultOfHostPort(std::string_view address) {
  if (address.find('/') != std::string_view::npos) return "has a path";
  if (Consume(address, "[")) {
    const size_t close = address.find(']');
    if (close == std::string_view::npos) return "has no closing bracket";
    if (!IsIpv6(address.substr(0, close))) return "has no IPv6 address in its brackets";
    address.remove_prefix(close + 1);
    return Consume(address, ":") ? FaultOfPort(address) : "has no port";
  }
  const size_t colon = address.find(':');
  if (colon == std::string_view::npos) return "has no port";
  if (colon != address.rfind(':')) return "has several colons: put an IPv6 address in brackets";
  if (colon == 0) return "has no host";
  const std::string_view host = address.substr(0, colon);
  if (!std::all_of(host.begin(), host.end(), [](char c) {
        return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
      })) {
    return absl::StrCat("has host \"", std::string(host), "\", expected a name or an IPv4 address");
  }
  return FaultOfPort(address.substr(colon + 1));
}

std::string Fault(std::string_view address) {
  if (address.empty()) return "is empty";
  if (std::any_of(address.begin(), address.end(), [](char c) { return absl::ascii_isspace(c); })) {
    return "has a space";
  }
  if (std::any_of(address.begin(), address.end(), [](char c) { return absl::ascii_iscntrl(c); })) {
    return "has a control character";
  }
  for (const char* kind : kOtherKinds) {
    std::string_view name = address;
    if (Consume(name, kind)) {
      return name.empty() ? absl::StrCat("has nothing behind ", kind) : "";
    }
  }
  if (Consume(address, "dns:")) {
    if (Consume(address, "//")) {  // a name server
      const size_t end = address.find('/');
      if (end == std::string_view::npos) return "has no host";
      address.remove_prefix(end + 1);
    }
    return FaultOfHostPort(address);
  }
  if (Consume(address, "ipv4:") || Consume(address, "ipv6:")) {
    while (true) {  // several addresses, separated by commas
      const size_t comma = address.find(',');
      std::string fault = FaultOfHostPort(address.substr(0, comma));
      if (!fault.empty() || comma == std::string_view::npos) return fault;
      address.remove_prefix(comma + 1);
    }
  }
  if (const size_t scheme = address.find("://"); scheme != std::string_view::npos) {
    return absl::StrCat("has a scheme: leave out ", std::string(address.substr(0, scheme + 3)));
  }
  return FaultOfHostPort(address);
}

}  // namespace

absl::Status CheckServerAddress(std::string_view flag, const std::string& address) {
  const std::string fault = Fault(address);
  if (fault.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(std::string(flag), ": \"", EscapeControls(address),
                                                 "\" ", fault,
                                                 "; expected HOST:PORT, such as localhost:8001"));
}

absl::Status CheckServerName(std::string_view flag, const std::string& name) {
  constexpr size_t kMostCharacters = 253;
  if (name.size() <= kMostCharacters) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(std::string(flag), " is a name of ", name.size(),
                                                 " characters, must be of ", kMostCharacters,
                                                 " at most"));
}

}  // namespace hilbert_ring::wire
