#include "server/process/http_endpoint.h"

#include <CivetServer.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/process/host_port.h"
#include "server/process/listen_check.h"

namespace hilbert_ring::server {
namespace {

class CivetEndpoint : public HttpEndpoint, private CivetHandler {
 public:
  CivetEndpoint(const std::vector<std::string>& options, std::map<std::string, Handler> routes)
      : routes_(std::move(routes)), server_(options) {
    server_.addHandler("**", *this);
    const std::vector<int> ports = server_.getListeningPorts();
    port_ = ports.empty() ? 0 : ports.front();
  }

  // Stops the server's threads while the routes still live. The one that accepts looks up only when
  // somebody connects, or every 2 s.
  ~CivetEndpoint() override {
    const std::jthread waker([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        ConnectOnce();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
    server_.close();
  }

  int port() const override { return port_; }

 private:
  bool handleGet(CivetServer*, mg_connection* connection) override {
    const auto route = routes_.find(mg_get_request_info(connection)->local_uri);
    Reply(connection, route == routes_.end() ? HttpReply{.status = 404, .body = "not found\n"}
                                             : route->second());
    return true;
  }

  // To where it listens; the loopback address stands for all.
  void ConnectOnce() const {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port_));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
    close(fd);
  }

  static void Reply(mg_connection* connection, const HttpReply& reply) {
    const std::string head = absl::StrCat(
        "HTTP/1.1 ", reply.status, " ", mg_get_response_code_text(connection, reply.status),
        "\r\nContent-Type: ", reply.content_type, "\r\nContent-Length: ", reply.body.size(),
        "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n");
    mg_write(connection, head.data(), head.size());
    mg_write(connection, reply.body.data(), reply.body.size());
  }

  const std::map<std::string, Handler> routes_;
  int port_ = 0;
  CivetServer server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpEndpoint>> HttpEndpoint::Start(
    const std::string& host, int port, std::map<std::string, Handler> routes) {
  if (absl::Status free = CheckCanListen("http", host, port); !free.ok()) return free;
  const std::string where = HostPort(host, port);
  try {
    return std::make_unique<CivetEndpoint>(
        std::vector<std::string>{"listening_ports", where, "num_threads", "4", "request_timeout_ms",
                                 "5000"},
        std::move(routes));
  } catch (const CivetException& error) {
    return absl::UnavailableError(absl::StrCat("cannot listen on http ", where,
                                               ": is the port free and the host an address?"));
  }
}

}  // namespace hilbert_ring::server
