#include "server/process/http_endpoint.h"

#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "server/process/host_port.h"
#include "server/process/listening_sockets.h"

namespace hilbert_ring::server {
namespace {

// One thread serves all connections; one that says nothing costs a descriptor and some KiB.
constexpr unsigned kMostConnections = 8192;
constexpr unsigned kMostOfAnAddress = 4096;
constexpr unsigned kSilenceSeconds = 5;
constexpr size_t kRequestBytes = 8 << 10;  // of memory for a request's head and its answer's

class MicroHttpEndpoint : public HttpEndpoint {
 public:
  explicit MicroHttpEndpoint(std::map<std::string, Handler> routes) : routes_(std::move(routes)) {}

  ~MicroHttpEndpoint() override {
    if (daemon_ != nullptr) MHD_stop_daemon(daemon_);
  }

  // Whether it listens there now.
  bool Listen(const sockaddr* address) {
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD;
    if (address->sa_family == AF_INET6) flags |= MHD_USE_IPv6;
    daemon_ = MHD_start_daemon(flags, 0, nullptr, nullptr, &Answer, this, MHD_OPTION_SOCK_ADDR,
                               address, MHD_OPTION_CONNECTION_LIMIT, kMostConnections,
                               MHD_OPTION_PER_IP_CONNECTION_LIMIT, kMostOfAnAddress,
                               MHD_OPTION_CONNECTION_TIMEOUT, kSilenceSeconds,
                               MHD_OPTION_CONNECTION_MEMORY_LIMIT, kRequestBytes, MHD_OPTION_END);
    return daemon_ != nullptr;
  }

  int port() const override {
    return MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_BIND_PORT)->port;
  }

 private:
  static MHD_Result Answer(void* self, MHD_Connection* connection, const char* path,
                           const char* method, const char* /*version*/, const char* /*body*/,
                           size_t* body_bytes, void** /*request*/) {
    const HttpReply reply = static_cast<const MicroHttpEndpoint*>(self)->ReplyTo(method, path);
    *body_bytes = 0;
    MHD_Response* response = MHD_create_response_from_buffer(
        reply.body.size(), const_cast<char*>(reply.body.data()), MHD_RESPMEM_MUST_COPY);
    if (response == nullptr) return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply.content_type.c_str());
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    if (reply.status == MHD_HTTP_METHOD_NOT_ALLOWED) {
      MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    }
    const MHD_Result queued =
        MHD_queue_response(connection, static_cast<unsigned>(reply.status), response);
    MHD_destroy_response(response);
    return queued;
  }

  HttpReply ReplyTo(std::string_view method, const std::string& path) const {
    if (method != MHD_HTTP_METHOD_GET && method != MHD_HTTP_METHOD_HEAD) {
      return {.status = MHD_HTTP_METHOD_NOT_ALLOWED, .body = "GET and HEAD alone\n"};
    }
    const auto route = routes_.find(path);
    if (route == routes_.end()) return {.status = MHD_HTTP_NOT_FOUND, .body = "not found\n"};
    return route->second();
  }

  const std::map<std::string, Handler> routes_;
  MHD_Daemon* daemon_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpEndpoint>> HttpEndpoint::Start(
    const std::string& host, int port, std::map<std::string, Handler> routes) {
  RETURN_IF_ERROR(CheckCanListen("http", host, port));
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  auto endpoint = std::make_unique<MicroHttpEndpoint>(std::move(routes));
  bool listens = false;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) == 0) {
    for (const addrinfo* at = found; at != nullptr && !listens; at = at->ai_next) {
      listens = endpoint->Listen(at->ai_addr);
    }
    freeaddrinfo(found);
  }
  if (!listens) {
    return absl::UnavailableError(absl::StrCat("cannot listen on http ", HostPort(host, port),
                                               ": is the port free and the host an address?"));
  }
  return endpoint;
}

}  // namespace hilbert_ring::server
