#include "server/process/http_endpoint.h"

#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "server/process/deadline.h"
#include "server/process/host_port.h"
#include "server/process/listening_sockets.h"
#include "server/process/tls.h"

namespace hilbert_ring::server {
namespace {

// One thread serves all connections; one that says nothing costs a descriptor and some KiB.
constexpr unsigned kMostConnections = 8192;
constexpr unsigned kMostOfAnAddress = 4096;
constexpr unsigned kSilenceSeconds = 5;
constexpr auto kReadAgain = std::chrono::seconds(1);
constexpr auto kPoll = std::chrono::milliseconds(20);
constexpr size_t kRequestBytes = 8 << 10;  // of memory for a request's head and its answer's

// Of answers that are being sent. Those who read slowly keep theirs, up to some 100 KiB each; short
// answers, such as /livez's, are outside of this bound.
constexpr size_t kMostUnsentBytes = size_t{16} << 20;
constexpr size_t kShortAnswer = 1024;

// An answer's body while the library sends it.
class Unsent {
 public:
  Unsent(std::string body, std::atomic<size_t>& all) : body_(std::move(body)), all_(all) {
    all_ += body_.size();
  }
  ~Unsent() { all_ -= body_.size(); }
  Unsent(const Unsent&) = delete;
  Unsent& operator=(const Unsent&) = delete;

  std::string& body() { return body_; }
  static void Free(void* self) { delete static_cast<Unsent*>(self); }

 private:
  std::string body_;
  std::atomic<size_t>& all_;
};

class MicroHttpEndpoint : public HttpEndpoint {
 public:
  MicroHttpEndpoint(std::map<std::string, Handler> routes, HttpTls tls)
      : routes_(std::move(routes)), tls_(std::move(tls)) {}

  ~MicroHttpEndpoint() override {
    watch_ = {};
    if (daemon_ != nullptr) MHD_stop_daemon(daemon_);
  }

  // Whether it listens there now.
  bool Listen(const sockaddr* address) {
    identity_ = Read();
    ipv6_ = address->sa_family == AF_INET6;
    daemon_ = Start({MHD_OPTION_SOCK_ADDR, 0, const_cast<sockaddr*>(address)});
    if (daemon_ == nullptr) return false;
    port_ = MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_BIND_PORT)->port;
    if (!tls_.cert.empty()) {
      watch_ = std::jthread([this](const std::stop_token& stop) { Watch(stop); });
    }
    return true;
  }

  int port() const override { return port_; }

 private:
  struct Identity {
    std::string cert, key;  // in PEM
    bool operator==(const Identity&) const = default;
  };

  Identity Read() const {
    const auto text = [](const std::string& path) {
      std::ifstream file(path);
      return std::string(std::istreambuf_iterator<char>(file), {});
    };
    return {.cert = text(tls_.cert), .key = text(tls_.key)};
  }

  // where: to listen, an address or a socket that listens. Null when it cannot.
  MHD_Daemon* Start(const MHD_OptionItem& where) {
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC;
    if (ipv6_) flags |= MHD_USE_IPv6;
    std::vector<MHD_OptionItem> options = {where};
    if (!tls_.cert.empty()) {
      flags |= MHD_USE_TLS;
      options.push_back({MHD_OPTION_HTTPS_MEM_CERT, 0, identity_.cert.data()});
      options.push_back({MHD_OPTION_HTTPS_MEM_KEY, 0, identity_.key.data()});
    }
    options.push_back({MHD_OPTION_END, 0, nullptr});
    return MHD_start_daemon(flags, 0, nullptr, nullptr, &Answer, this, MHD_OPTION_ARRAY,
                            options.data(), MHD_OPTION_CONNECTION_LIMIT, kMostConnections,
                            MHD_OPTION_PER_IP_CONNECTION_LIMIT, kMostOfAnAddress,
                            MHD_OPTION_CONNECTION_TIMEOUT, kSilenceSeconds,
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, kRequestBytes, MHD_OPTION_END);
  }

  void Watch(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    while (!wake.wait_for(lock, stop, kReadAgain, [&] { return stop.stop_requested(); })) {
      Identity now = Read();
      const bool news = now != identity_;
      if (news && CheckTlsFiles({.cert = tls_.cert, .key = tls_.key}).ok() && now == Read()) {
        Renew(std::move(now));
      }
    }
  }

  // The library's own server cannot change its certificate: another one takes over the socket.
  // Those who connect meanwhile wait in the socket's queue.
  void Renew(Identity identity) {
    MHD_Daemon* const before = daemon_;
    const MHD_socket socket = MHD_quiesce_daemon(before);
    const Identity former = std::exchange(identity_, std::move(identity));
    const MHD_OptionItem where = {MHD_OPTION_LISTEN_SOCKET, socket, nullptr};
    daemon_ = Start(where);
    if (daemon_ == nullptr) {
      identity_ = former;
      daemon_ = Start(where);
    }
    const auto limit = Clock::now() + std::chrono::seconds(kSilenceSeconds);
    while (Connections(before) > 0 && Clock::now() < limit) std::this_thread::sleep_for(kPoll);
    MHD_stop_daemon(before);
  }

  static unsigned Connections(MHD_Daemon* daemon) {
    return MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS)->num_connections;
  }

  static MHD_Result Answer(void* self, MHD_Connection* connection, const char* path,
                           const char* method, const char* /*version*/, const char* /*body*/,
                           size_t* body_bytes, void** /*request*/) {
    const char* const given =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    const auto* const endpoint = static_cast<const MicroHttpEndpoint*>(self);
    HttpReply reply = endpoint->ReplyTo(method, path, given == nullptr ? "" : given);
    *body_bytes = 0;
    auto unsent = std::make_unique<Unsent>(std::move(reply.body), endpoint->unsent_bytes_);
    MHD_Response* response = MHD_create_response_from_buffer_with_free_callback_cls(
        unsent->body().size(), unsent->body().data(), &Unsent::Free, unsent.get());
    if (response == nullptr) return MHD_NO;
    (void)unsent.release();  // Free deletes it
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply.content_type.c_str());
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    if (reply.status == MHD_HTTP_METHOD_NOT_ALLOWED) {
      MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    }
    if (reply.status == MHD_HTTP_UNAUTHORIZED) {
      MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
      // A browser asks its user for a name and a password, which is the token.
      MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE,
                              "Basic realm=\"Hilbert Ring: the password is a token\"");
    }
    const MHD_Result queued =
        MHD_queue_response(connection, static_cast<unsigned>(reply.status), response);
    MHD_destroy_response(response);
    return queued;
  }

  HttpReply ReplyTo(std::string_view method, const std::string& path,
                    std::string_view authorization) const {
    if (method != MHD_HTTP_METHOD_GET && method != MHD_HTTP_METHOD_HEAD) {
      return {.status = MHD_HTTP_METHOD_NOT_ALLOWED, .body = "GET and HEAD alone\n"};
    }
    const auto route = routes_.find(path);
    if (route == routes_.end()) return {.status = MHD_HTTP_NOT_FOUND, .body = "not found\n"};
    const std::lock_guard lock(answering_);
    HttpReply reply = route->second(authorization);
    if (reply.body.size() > kShortAnswer && unsent_bytes_ >= kMostUnsentBytes) {
      return {.status = MHD_HTTP_SERVICE_UNAVAILABLE, .body = "too many answers are unread\n"};
    }
    return reply;
  }

  const std::map<std::string, Handler> routes_;
  const HttpTls tls_;
  mutable std::mutex answering_;  // two servers answer while one takes over from the other
  mutable std::atomic<size_t> unsent_bytes_ = 0;
  bool ipv6_ = false;
  int port_ = 0;
  // The watch's, once it runs.
  Identity identity_;
  MHD_Daemon* daemon_ = nullptr;
  std::jthread watch_;  // last: it uses all of the above
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpEndpoint>> HttpEndpoint::Start(
    const std::string& host, int port, std::map<std::string, Handler> routes, HttpTls tls) {
  RETURN_IF_ERROR(CheckCanListen("http", host, port));
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  auto endpoint = std::make_unique<MicroHttpEndpoint>(std::move(routes), std::move(tls));
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
