#include "server/process/http_endpoint.h"

#include <microhttpd.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"
#include "server/process/connection_listener.h"
#include "server/process/deadline.h"
#include "server/process/http_head.h"
#include "server/process/interval_thread.h"
#include "server/process/listening_sockets.h"
#include "server/process/refusal_log.h"
#include "server/process/regular_file.h"
#include "server/process/security_settings.h"
#include "server/process/tls_files.h"
#include "wire/control_characters.h"

namespace hilbert_ring::server {
namespace {

// One thread serves all connections; one that says nothing costs a descriptor and some KiB.
constexpr unsigned kMostConnections = 8192;
constexpr unsigned kSilenceSeconds = 5;
constexpr auto kLookAgain = std::chrono::seconds(1);
constexpr auto kPoll = std::chrono::milliseconds(20);

// Of answers that are being sent. Those who read slowly keep theirs, up to some 100 KiB each; short
// answers, such as /livez's, are outside of this bound.
constexpr size_t kMostUnsentBytes = size_t{16} << 20;
constexpr size_t kShortAnswer = 1024;
constexpr size_t kMostHostShown = 256;

// As gRPC's ports have it: GnuTLS by itself lets TLS 1.0 and 1.1 in.
constexpr char kTlsPriorities[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";
// The page has styles of its own, and nothing else.
constexpr char kContentPolicy[] =
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

using Body = std::shared_ptr<const std::string>;

Body BodyOf(HttpReply& reply) {
  return reply.shared ? reply.shared : std::make_shared<const std::string>(std::move(reply.body));
}

// Bodies of answers while the library sends them; one that several answers have counts once.
class Unsent {
 public:
  // Of one answer.
  class Share {
   public:
    Share(Unsent& all, Body body) : all_(all), body_(std::move(body)) { all_.Add(*body_); }
    ~Share() { all_.Remove(*body_); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    const std::string& body() const { return *body_; }
    static void Free(void* self) { delete static_cast<Share*>(self); }

   private:
    Unsent& all_;
    const Body body_;
  };

  // Whether the body may be sent as well.
  bool Takes(const std::string& body) const {
    const MutexLock lock(mutex_);
    return body.size() <= kShortAnswer || bytes_ < kMostUnsentBytes || answers_.contains(&body);
  }

 private:
  void Add(const std::string& body) {
    const MutexLock lock(mutex_);
    if (++answers_[&body] == 1) bytes_ += body.size();
  }

  void Remove(const std::string& body) {
    const MutexLock lock(mutex_);
    const auto answers = answers_.find(&body);
    if (--answers->second > 0) return;
    answers_.erase(answers);
    bytes_ -= body.size();
  }

  mutable Mutex mutex_;
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<const std::string*, int> answers_ ABSL_GUARDED_BY(mutex_);  // by their body
};

// Connections and since when they are there: the library bounds their silence, not their life.
class Lives {
 public:
  explicit Lives(Clock::duration longest) : longest_(longest) {}

  // As libmicrohttpd calls it, before it closes a connection's descriptor.
  static void Note(void* self, MHD_Connection* connection, void** /*context*/,
                   MHD_ConnectionNotificationCode code) {
    const int descriptor =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    const MHD_Daemon* const daemon =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_DAEMON)->daemon;
    auto* const lives = static_cast<Lives*>(self);
    const MutexLock lock(lives->mutex_);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
      ++lives->started_[daemon];
      lives->since_.insert_or_assign(descriptor, Clock::now());
    } else {
      lives->since_.erase(descriptor);
    }
  }

  // Connections that a server has begun with since it was there.
  int64_t Started(const MHD_Daemon* daemon) const {
    const MutexLock lock(mutex_);
    const auto started = started_.find(daemon);
    return started == started_.end() ? 0 : started->second;
  }

  void Forget(const MHD_Daemon* daemon) {
    const MutexLock lock(mutex_);
    started_.erase(daemon);
  }

  // The library closes those that are shut down here.
  void EndLongest() {
    const Clock::time_point now = Clock::now();
    const MutexLock lock(mutex_);
    for (const auto& [descriptor, since] : since_) {
      if (now - since > longest_) shutdown(descriptor, SHUT_RDWR);
    }
  }

 private:
  const Clock::duration longest_;
  mutable Mutex mutex_;
  std::map<int, Clock::time_point> since_ ABSL_GUARDED_BY(mutex_);  // by descriptor
  std::map<const MHD_Daemon*, int64_t> started_ ABSL_GUARDED_BY(mutex_);
};

class MicroHttpEndpoint : public HttpEndpoint {
 public:
  MicroHttpEndpoint(const std::string& host, std::map<std::string, Handler> routes, HttpTls tls,
                    const HttpLimits& limits)
      : routes_(std::move(routes)),
        tls_(std::move(tls)),
        loopback_alone_(tls_.cert.empty() && IsLoopback(host)),
        lives_(limits.longest_life) {}

  ~MicroHttpEndpoint() override {
    listener_.reset();
    watch_.reset();
    const MutexLock lock(serving_);
    if (daemon_ != nullptr) MHD_stop_daemon(daemon_);
  }

  absl::Status Serve(ListeningSockets sockets, int connections_per_peer) {
    port_ = sockets.port();
    identity_ = Read();
    MHD_Daemon* const daemon = Start(identity_);
    if (daemon == nullptr) {
      return absl::UnavailableError(absl::StrCat(
          "libmicrohttpd did not start: no descriptor or thread is left",
          tls_.cert.empty() ? "" : ", or it does not take the certificate in ", tls_.cert));
    }
    Show(daemon);
    ASSIGN_OR_RETURN(listener_,
                     ConnectionListener::Start(
                         std::move(sockets), {.connections_per_peer = connections_per_peer},
                         {.serve = [this](int, int connection) { Take(connection); },
                          .refused = [this](const absl::Status& why) { Log(why); }}));
    watch_.emplace(kLookAgain, [this](const std::stop_token& stop) { Look(stop); });
    return absl::OkStatus();
  }

  int port() const override { return port_; }

 private:
  struct Identity {
    std::string cert, key;  // in PEM
    bool operator==(const Identity&) const = default;
  };

  Identity Read() const {
    const auto text = [](const std::string& path) {
      return ReadRegularFile(path, kMostPemBytes).value_or("");
    };
    return {.cert = text(tls_.cert), .key = text(tls_.key)};
  }

  // Null when it cannot. It copies the identity.
  MHD_Daemon* Start(Identity identity) {
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC | MHD_USE_NO_LISTEN_SOCKET;
    std::vector<MHD_OptionItem> options;
    if (!tls_.cert.empty()) {
      flags |= MHD_USE_TLS;
      options.push_back({MHD_OPTION_HTTPS_MEM_CERT, 0, identity.cert.data()});
      options.push_back({MHD_OPTION_HTTPS_MEM_KEY, 0, identity.key.data()});
      options.push_back({MHD_OPTION_HTTPS_PRIORITIES, 0, const_cast<char*>(kTlsPriorities)});
    }
    options.push_back({MHD_OPTION_END, 0, nullptr});
    return MHD_start_daemon(flags, 0, nullptr, nullptr, &Answer, this, MHD_OPTION_ARRAY,
                            options.data(), MHD_OPTION_CONNECTION_LIMIT, kMostConnections,
                            MHD_OPTION_CONNECTION_TIMEOUT, kSilenceSeconds,
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, kHttpConnectionBytes,
                            MHD_OPTION_NOTIFY_CONNECTION, &Lives::Note, &lives_, MHD_OPTION_END);
  }

  struct Before {
    MHD_Daemon* daemon = nullptr;  // null: none
    int64_t given = 0;             // connections, some of which it may not have begun with
  };

  // New connections are this one's from here on; the one before has the others.
  Before Show(MHD_Daemon* daemon) {
    Before before;
    {
      const MutexLock lock(serving_);
      before = {.daemon = std::exchange(daemon_, daemon), .given = std::exchange(given_, 0)};
    }
    if (tls_.shown) tls_.shown(identity_.cert);
    return before;
  }

  // The library closes a connection that it does not take.
  void Take(int connection) {
    sockaddr_storage address = {};
    socklen_t length = sizeof(address);
    auto* const at = reinterpret_cast<sockaddr*>(&address);
    if (getpeername(connection, at, &length) != 0) {
      close(connection);
      return;
    }
    const MutexLock lock(serving_);
    if (MHD_add_connection(daemon_, connection, at, length) == MHD_YES) ++given_;
  }

  void Log(const absl::Status& why) {
    if (const auto refused = refusals_.Note(Clock::now())) {
      spdlog::warn("HTTP: {} (connections refused since the last such line: {})",
                   std::string(why.message()), *refused);
    }
  }

  void Look(const std::stop_token& stop) {
    lives_.EndLongest();
    if (tls_.cert.empty()) return;
    Identity now = Read();
    if (now == identity_) {
      told_ = absl::OkStatus();
    } else if (absl::Status status = Renew(std::move(now), stop);
               !status.ok() && status != std::exchange(told_, status)) {
      spdlog::error("HTTP keeps its certificate: {}", std::string(status.message()));
    }
  }

  // The library's own server cannot change its certificate: another one takes over.
  absl::Status Renew(Identity identity, const std::stop_token& stop) {
    RETURN_IF_ERROR(CheckTlsFiles({.cert = tls_.cert, .key = tls_.key}));
    if (identity != Read()) return absl::OkStatus();  // the next look finds it whole
    MHD_Daemon* const daemon = Start(identity);
    if (daemon == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("no server starts with the new one in ", tls_.cert));
    }
    identity_ = std::move(identity);
    const Before before = Show(daemon);
    // The library counts a connection from when its thread has come to it, and ends those that it
    // has not come to without a word.
    const auto limit = Clock::now() + std::chrono::seconds(kSilenceSeconds);
    while ((lives_.Started(before.daemon) < before.given || Connections(before.daemon) > 0) &&
           Clock::now() < limit && !stop.stop_requested()) {
      std::this_thread::sleep_for(kPoll);
    }
    MHD_stop_daemon(before.daemon);
    lives_.Forget(before.daemon);
    return absl::OkStatus();
  }

  static unsigned Connections(MHD_Daemon* daemon) {
    return MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS)->num_connections;
  }

  static std::string Header(MHD_Connection* connection, const char* name) {
    const char* const value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
    return value == nullptr ? "" : value;
  }

  static MHD_Result Answer(void* self, MHD_Connection* connection, const char* target,
                           const char* method, const char* /*version*/, const char* /*body*/,
                           size_t* body_bytes, void** /*request*/) {
    const auto* const endpoint = static_cast<const MicroHttpEndpoint*>(self);
    const bool too_large = HttpHeadIsTooLarge(connection);
    if (too_large && endpoint->tls_.cert.empty()) {
      SayHttpHeadIsTooLarge(connection);
      return MHD_NO;
    }
    HttpReply reply =
        too_large ? HttpReply{.status = MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE,
                              .body = kHttpHeadTooLarge}
                  : endpoint->ReplyTo(
                        method, HttpTargetOf(target, Header(connection, MHD_HTTP_HEADER_HOST)),
                        Header(connection, MHD_HTTP_HEADER_AUTHORIZATION));
    *body_bytes = 0;
    auto share = std::make_unique<Unsent::Share>(endpoint->unsent_, BodyOf(reply));
    // The library does not write to it.
    MHD_Response* response = MHD_create_response_from_buffer_with_free_callback_cls(
        share->body().size(), const_cast<char*>(share->body().data()), &Unsent::Share::Free,
        share.get());
    if (response == nullptr) return MHD_NO;
    (void)share.release();  // Free deletes it
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply.content_type.c_str());
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Content-Security-Policy", kContentPolicy);
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

  HttpReply ReplyTo(std::string_view method, const HttpTarget& target,
                    std::string_view authorization) const {
    if (loopback_alone_ && !target.host.empty() && !IsLoopbackAuthority(target.host)) {
      return {.status = MHD_HTTP_MISDIRECTED_REQUEST,
              .body = absl::StrCat("Host is ", wire::Legible(target.host, kMostHostShown),
                                   ", must be localhost or a loopback address (--http-host)\n")};
    }
    if (method != MHD_HTTP_METHOD_GET && method != MHD_HTTP_METHOD_HEAD) {
      return {.status = MHD_HTTP_METHOD_NOT_ALLOWED, .body = "GET and HEAD alone\n"};
    }
    const auto route = routes_.find(target.path);
    if (route == routes_.end()) return {.status = MHD_HTTP_NOT_FOUND, .body = "not found\n"};
    const std::lock_guard lock(answering_);
    HttpReply reply = route->second(authorization);
    if (!unsent_.Takes(reply.shared ? *reply.shared : reply.body)) {
      return {.status = MHD_HTTP_SERVICE_UNAVAILABLE, .body = "too many answers are unread\n"};
    }
    return reply;
  }

  const std::map<std::string, Handler> routes_;
  const HttpTls tls_;
  // Other names lead to a loopback address by DNS rebinding. Of TLS they need a certificate.
  const bool loopback_alone_;
  mutable std::mutex answering_;  // two servers answer while one takes over from the other
  mutable Unsent unsent_;
  int port_ = 0;
  Lives lives_;
  RefusalLog refusals_;
  // The watch's, once it runs.
  Identity identity_;  // that is shown
  absl::Status told_;  // why another one is not, which the log has
  Mutex serving_;
  MHD_Daemon* daemon_ ABSL_GUARDED_BY(serving_) = nullptr;
  int64_t given_ ABSL_GUARDED_BY(serving_) = 0;  // connections, to daemon_
  // Last: they use all of the above.
  std::unique_ptr<ConnectionListener> listener_;
  std::optional<IntervalThread> watch_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpEndpoint>> HttpEndpoint::Start(
    const std::string& host, int port, std::map<std::string, Handler> routes, HttpTls tls,
    const HttpLimits& limits) {
  ASSIGN_OR_RETURN(auto sockets, ListeningSockets::Open("http (--http-port)", host, port));
  auto endpoint =
      std::make_unique<MicroHttpEndpoint>(host, std::move(routes), std::move(tls), limits);
  RETURN_IF_ERROR(endpoint->Serve(std::move(sockets), limits.connections_per_peer));
  return endpoint;
}

}  // namespace hilbert_ring::server
