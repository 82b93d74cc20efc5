#include "server/process/http_head.h"

#include <microhttpd.h>
#include <sys/socket.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/process/host_port.h"
#include "server/process/security_settings.h"

namespace hilbert_ring::server {
namespace {

constexpr size_t kMostHeadBytes = 16 << 10;
constexpr size_t kEntryBytes = 64;
constexpr size_t kAnswerHeadBytes = 1024;

}  // namespace

HttpTarget HttpTargetOf(const std::string& target, const std::string& host_header) {
  const size_t colon = target.find("://");
  const std::string scheme = absl::AsciiStrToLower(target.substr(0, colon));
  if (colon == target.npos || (scheme != "http" && scheme != "https")) {
    return {.host = host_header, .path = target};
  }
  const std::string rest = target.substr(colon + 3);
  const size_t slash = rest.find('/');
  return {.host = rest.substr(0, slash), .path = slash == rest.npos ? "/" : rest.substr(slash)};
}

bool IsLoopbackAuthority(const std::string& host) {
  const size_t port = host.find_last_not_of("0123456789");
  const bool has_port = port != host.npos && host[port] == ':';
  return IsLoopback(WithoutBrackets(absl::AsciiStrToLower(has_port ? host.substr(0, port) : host)));
}

bool HttpHeadIsTooLarge(MHD_Connection* connection) {
  const size_t bytes =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE)->header_size;
  constexpr int kKinds = MHD_HEADER_KIND | MHD_COOKIE_KIND | MHD_GET_ARGUMENT_KIND;
  const int entries =
      MHD_get_connection_values(connection, static_cast<MHD_ValueKind>(kKinds), nullptr, nullptr);
  const size_t taken = 2 * bytes + static_cast<size_t>(entries) * kEntryBytes;
  return bytes > kMostHeadBytes || taken + kAnswerHeadBytes > kHttpConnectionBytes;
}

void SayHttpHeadIsTooLarge(MHD_Connection* connection) {
  const std::string answer = absl::StrCat(
      "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain\r\n"
      "Connection: close\r\nContent-Length: ",
      sizeof(kHttpHeadTooLarge) - 1, "\r\n\r\n", kHttpHeadTooLarge);
  send(MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd,
       answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace hilbert_ring::server
