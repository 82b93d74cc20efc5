#include "server/process/peer_network.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "server/process/host_port.h"

namespace hilbert_ring::server {
namespace {

constexpr size_t kNetworkBytes = 8;

std::string TextOf(int family, const void* address) {
  char text[INET6_ADDRSTRLEN] = {};
  return inet_ntop(family, address, text, sizeof(text)) == nullptr ? "" : text;
}

}  // namespace

std::string PeerName(const std::string& host, PeerIs peer) {
  const size_t scope = std::min(host.find('%'), host.size());
  in6_addr address = {};
  if (inet_pton(AF_INET6, host.substr(0, scope).c_str(), &address) != 1) return host;
  if (IN6_IS_ADDR_V4MAPPED(&address)) return TextOf(AF_INET, &address.s6_addr[12]);
  if (peer == PeerIs::kAddress || IN6_IS_ADDR_LOOPBACK(&address)) return host;
  std::fill(std::begin(address.s6_addr) + kNetworkBytes, std::end(address.s6_addr), 0);
  return absl::StrCat(TextOf(AF_INET6, &address), "/64", host.substr(scope));
}

std::string AddressOfPeer(const std::string& peer) {
  absl::string_view address = peer;
  if (absl::ConsumePrefix(&address, "ipv4:")) return std::string(address);
  if (!absl::ConsumePrefix(&address, "ipv6:")) return "";
  // gRPC escapes it as in a URI.
  return absl::StrReplaceAll(address, {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
}

std::string PeerHost(const std::string& peer, PeerIs is) {
  const std::string address = AddressOfPeer(peer);
  if (address.empty()) return peer;
  return PeerName(WithoutBrackets(address.substr(0, address.rfind(':'))), is);
}

}  // namespace hilbert_ring::server
