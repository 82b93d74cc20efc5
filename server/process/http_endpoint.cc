#include "server/process/http_endpoint.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/process/deadline.h"
#include "server/process/host_port.h"
#include "server/process/listen_check.h"
#include "server/process/threads.h"

namespace hilbert_ring::server {
namespace {

// Whoever connects when so many have, takes the place of the one that has been there longest.
constexpr size_t kMostConnections = 256;
constexpr size_t kMostRequestBytes = 8 << 10;
constexpr auto kTimeLimit = std::chrono::seconds(5);  // of a connection, from its first to its last
constexpr auto kPause = std::chrono::milliseconds(50);  // when no descriptor is left

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Listening, and the port; -1 where it cannot be.
std::pair<Descriptor, int> Listen(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return std::pair(Descriptor(), 0);
  }
  Descriptor listener;
  for (const addrinfo* at = found; at != nullptr && listener.get() < 0; at = at->ai_next) {
    Descriptor tried(socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int on = 1;
    setsockopt(tried.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(tried.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        listen(tried.get(), SOMAXCONN) == 0) {
      listener = std::move(tried);
    }
  }
  freeaddrinfo(found);
  sockaddr_storage name = {};
  socklen_t length = sizeof(name);
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&name), &length) != 0) {
    return std::pair(Descriptor(), 0);
  }
  // Both families have it in the same place.
  return {std::move(listener), ntohs(reinterpret_cast<const sockaddr_in*>(&name)->sin_port)};
}

const char* TextOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Error";
  }
}

struct Connection {
  Descriptor socket;
  Deadline due;
  std::string request;  // up to the end of its head
  std::string reply;    // what has not left; empty and `answered`: the peer is to close
  bool answered = false;
};

// One thread serves all connections, and none waits for another: a connection that says nothing
// costs a descriptor and nothing else.
class PollingEndpoint : public HttpEndpoint {
 public:
  PollingEndpoint(Descriptor listener, int port, std::map<std::string, Handler> routes)
      : routes_(std::move(routes)),
        port_(port),
        listener_(std::move(listener)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  ~PollingEndpoint() override {
    ending_ = true;
    eventfd_write(wake_.get(), 1);
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Serve() {
    auto thread = StartThread([this] {
      while (!ending_) ServeOnce();
    });
    if (thread.ok()) thread_ = *std::move(thread);
    return thread.status();
  }

  int port() const override { return port_; }

 private:
  void ServeOnce() {
    std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    Deadline next = Clock::now() + kTimeLimit;
    for (const Connection& connection : connections_) {
      const bool writes = !connection.reply.empty();
      polled.push_back({connection.socket.get(), static_cast<short>(writes ? POLLOUT : POLLIN), 0});
      next = std::min(next, connection.due);
    }
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
    poll(polled.data(), polled.size(), static_cast<int>(std::max<int64_t>(0, wait.count())));
    size_t i = 2;
    for (auto at = connections_.begin(); at != connections_.end(); ++i) {
      const bool moves = polled[i].revents == 0 ? Clock::now() < at->due : Move(*at);
      at = moves ? std::next(at) : connections_.erase(at);
    }
    if (polled[1].revents != 0) Accept();
  }

  void Accept() {
    for (size_t accepted = 0; accepted < kMostConnections; ++accepted) {
      Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (socket.get() < 0) {
        const bool no_descriptor = errno == EMFILE || errno == ENFILE;
        if (!no_descriptor) return;
        if (connections_.empty()) {
          std::this_thread::sleep_for(kPause);
          return;
        }
        connections_.pop_front();
        continue;
      }
      if (connections_.size() == kMostConnections) connections_.pop_front();
      connections_.push_back({.socket = std::move(socket), .due = Clock::now() + kTimeLimit});
      // What came with the connection is answered before others can take its place.
      if (!Move(connections_.back())) connections_.pop_back();
    }
  }

  // Reads or writes what there is. False when the connection is at its end.
  bool Move(Connection& connection) {
    if (connection.reply.empty() && !Read(connection)) return false;
    return connection.reply.empty() || Write(connection);
  }

  bool Read(Connection& connection) {
    char buffer[4096];
    const ssize_t bytes = recv(connection.socket.get(), buffer, sizeof(buffer), 0);
    if (bytes < 0) return errno == EAGAIN || errno == EINTR;
    if (bytes == 0) return false;
    if (connection.answered) return true;  // what follows is of no interest
    connection.request.append(buffer, static_cast<size_t>(bytes));
    if (connection.request.find("\r\n\r\n") != std::string::npos) {
      connection.reply = Answer(connection.request);
    } else if (connection.request.size() > kMostRequestBytes) {
      connection.reply = Encode({.status = 431, .body = "the request is too long\n"}, true);
    }
    connection.answered = !connection.reply.empty();
    return true;
  }

  bool Write(Connection& connection) {
    const ssize_t bytes = send(connection.socket.get(), connection.reply.data(),
                               connection.reply.size(), MSG_NOSIGNAL);
    if (bytes < 0) return errno == EAGAIN || errno == EINTR;
    connection.reply.erase(0, static_cast<size_t>(bytes));
    // Closed at once, with something unread, it would take the reply back.
    if (connection.reply.empty()) shutdown(connection.socket.get(), SHUT_WR);
    return true;
  }

  std::string Answer(const std::string& request) {
    const std::vector<std::string> words =
        absl::StrSplit(request.substr(0, request.find("\r\n")), ' ');
    if (words.size() != 3 || !words[2].starts_with("HTTP/1.")) {
      return Encode({.status = 400, .body = "not HTTP\n"}, true);
    }
    const bool head = words[0] == "HEAD";
    if (!head && words[0] != "GET") {
      return Encode({.status = 405, .body = "GET and HEAD alone\n"}, true);
    }
    const auto route = routes_.find(words[1].substr(0, words[1].find('?')));
    return Encode(
        route == routes_.end() ? HttpReply{.status = 404, .body = "not found\n"} : route->second(),
        !head);
  }

  static std::string Encode(const HttpReply& reply, bool with_body) {
    return absl::StrCat(
        "HTTP/1.1 ", reply.status, " ", TextOf(reply.status),
        "\r\nContent-Type: ", reply.content_type, "\r\nContent-Length: ", reply.body.size(),
        reply.status == 405 ? "\r\nAllow: GET, HEAD" : "",
        "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n", with_body ? reply.body : "");
  }

  const std::map<std::string, Handler> routes_;
  const int port_;
  const Descriptor listener_, wake_;
  std::atomic<bool> ending_ = false;
  std::list<Connection> connections_;  // the thread's; the oldest first
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpEndpoint>> HttpEndpoint::Start(
    const std::string& host, int port, std::map<std::string, Handler> routes) {
  if (absl::Status free = CheckCanListen("http", host, port); !free.ok()) return free;
  auto [listener, bound] = Listen(host, port);
  if (listener.get() < 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on http ", HostPort(host, port),
                                               ": is the port free and the host an address?"));
  }
  auto endpoint = std::make_unique<PollingEndpoint>(std::move(listener), bound, std::move(routes));
  if (absl::Status status = endpoint->Serve(); !status.ok()) return status;
  return endpoint;
}

}  // namespace hilbert_ring::server
