#include "server/process/http_endpoint.h"

#include <microhttpd.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"
#include "server/process/host_port.h"
#include "server/process/interval_thread.h"
#include "server/process/listening_sockets.h"
#include "server/process/security_settings.h"
#include "server/process/tls_files.h"
#include "wire/control_characters.h"

namespace hilbert_ring::server {
namespace {

// A single thread serves all connections; a silent connection costs a descriptor and some KiB.
constexpr unsigned kMostConnections = 8192;
constexpr unsigned kMostConnectionsOfHost = 1024;
constexpr unsigned kSilenceSeconds = 5;
constexpr auto kCertificateInterval = std::chrono::seconds(1);
constexpr size_t kMostHostShown = 256;

// GnuTLS by default accepts TLS 1.0 and 1.1, unlike gRPC.
constexpr char kTlsPriorities[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";
constexpr char kContentPolicy[] =
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

// libmicrohttpd's memory for the head of a request, with entries of it, and of the answer.
constexpr size_t kConnectionBytes = 64 << 10;
constexpr size_t kMostHeadBytes = 16 << 10;
constexpr size_t kEntryBytes = 64;
constexpr size_t kAnswerHeadBytes = 1024;
constexpr char kHeadTooLarge[] =
    "the request's head is too large, must have 16 KiB or fewer, and few headers and arguments\n";

struct Target {
  std::string host;  // with its port, as sent; empty: not given
  std::string path;
};

// target: "/path", or "http://host/path", whose host overrides the header.
Target TargetOf(const std::string& target, const std::string& host_header) {
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

// Returns whether the head leaves no room for the answer's head in kConnectionBytes.
bool HeadIsTooLarge(MHD_Connection* connection) {
  const size_t bytes =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE)->header_size;
  constexpr int kKinds = MHD_HEADER_KIND | MHD_COOKIE_KIND | MHD_GET_ARGUMENT_KIND;
  const int entries =
      MHD_get_connection_values(connection, static_cast<MHD_ValueKind>(kKinds), nullptr, nullptr);
  const size_t taken = 2 * bytes + static_cast<size_t>(entries) * kEntryBytes;
  return bytes > kMostHeadBytes || taken + kAnswerHeadBytes > kConnectionBytes;
}

// In clear text, past libmicrohttpd.
void AnswerTooLargeHead(MHD_Connection* connection) {
  const std::string answer = absl::StrCat(
      "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain\r\n"
      "Connection: close\r\nContent-Length: ",
      sizeof(kHeadTooLarge) - 1, "\r\n\r\n", kHeadTooLarge);
  send(MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd,
       answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

using Daemon = std::unique_ptr<MHD_Daemon, decltype(&MHD_stop_daemon)>;

class MicroHttpEndpoint : public HttpEndpoint {
 public:
  MicroHttpEndpoint(const std::string& host, std::map<std::string, Handler> routes, HttpTls tls)
      : routes_(std::move(routes)),
        files_{.cert = std::move(tls.cert), .key = std::move(tls.key)},
        on_shown_(std::move(tls.shown)),
        loopback_alone_(files_.cert.empty() && IsLoopback(host)) {}

  absl::Status Serve(ListeningSockets sockets) {
    port_ = sockets.port();
    RETURN_IF_ERROR(Show());
    listener_.emplace(std::move(sockets), [this](int, int connection) { Take(connection); });
    if (!files_.cert.empty()) watch_.emplace(kCertificateInterval, [this](const auto&) { Look(); });
    return absl::OkStatus();
  }

  int port() const override { return port_; }

 private:
  // Uses the files for new connections. libmicrohttpd cannot change a server's certificate: the
  // server before keeps its connections until the next change.
  absl::Status Show() {
    TlsTexts texts;
    if (!files_.cert.empty()) {
      ASSIGN_OR_RETURN(texts, ReadTlsFiles(files_));
      if (texts == shown_) return absl::OkStatus();
      RETURN_IF_ERROR(IdentityOf(files_, texts).status());
    }
    Daemon daemon(Start(texts), &MHD_stop_daemon);
    if (daemon == nullptr) {
      return absl::UnavailableError(absl::StrCat(
          "libmicrohttpd did not start: no descriptor or thread is free",
          files_.cert.empty() ? "" : ", or it refuses the certificate in ", files_.cert));
    }
    before_.reset();
    {
      const MutexLock lock(serving_);
      before_ = std::exchange(daemon_, std::move(daemon));
    }
    shown_ = std::move(texts);
    if (on_shown_) on_shown_(shown_.cert);
    return absl::OkStatus();
  }

  void Look() {
    absl::Status status = Show();
    if (!status.ok() && status != logged_) {
      spdlog::error("HTTP keeps its certificate: {}", std::string(status.message()));
    }
    logged_ = std::move(status);
  }

  // Null on failure. MHD_start_daemon copies the texts.
  MHD_Daemon* Start(TlsTexts texts) {
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC | MHD_USE_NO_LISTEN_SOCKET;
    std::vector<MHD_OptionItem> options;
    if (!files_.cert.empty()) {
      flags |= MHD_USE_TLS;
      options.push_back({MHD_OPTION_HTTPS_MEM_CERT, 0, texts.cert.data()});
      options.push_back({MHD_OPTION_HTTPS_MEM_KEY, 0, texts.key.data()});
      options.push_back({MHD_OPTION_HTTPS_PRIORITIES, 0, const_cast<char*>(kTlsPriorities)});
    }
    options.push_back({MHD_OPTION_END, 0, nullptr});
    return MHD_start_daemon(flags, 0, nullptr, nullptr, &Answer, this, MHD_OPTION_ARRAY,
                            options.data(), MHD_OPTION_CONNECTION_LIMIT, kMostConnections,
                            MHD_OPTION_PER_IP_CONNECTION_LIMIT, kMostConnectionsOfHost,
                            MHD_OPTION_CONNECTION_TIMEOUT, kSilenceSeconds,
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionBytes, MHD_OPTION_END);
  }

  // The library closes connections that it refuses.
  void Take(int connection) {
    sockaddr_storage address = {};
    socklen_t length = sizeof(address);
    auto* const at = reinterpret_cast<sockaddr*>(&address);
    if (getpeername(connection, at, &length) != 0) {
      close(connection);
      return;
    }
    const MutexLock lock(serving_);
    MHD_add_connection(daemon_.get(), connection, at, length);
  }

  static std::string Header(MHD_Connection* connection, const char* name) {
    const char* const value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
    return value == nullptr ? "" : value;
  }

  static MHD_Result Answer(void* self, MHD_Connection* connection, const char* target,
                           const char* method, const char* /*version*/, const char* /*body*/,
                           size_t* body_bytes, void** /*request*/) {
    const auto* const endpoint = static_cast<const MicroHttpEndpoint*>(self);
    const bool too_large = HeadIsTooLarge(connection);
    if (too_large && endpoint->files_.cert.empty()) {
      AnswerTooLargeHead(connection);
      return MHD_NO;
    }
    HttpReply reply =
        too_large
            ? HttpReply{.status = MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE, .body = kHeadTooLarge}
            : endpoint->ReplyTo(method, TargetOf(target, Header(connection, MHD_HTTP_HEADER_HOST)),
                                Header(connection, MHD_HTTP_HEADER_AUTHORIZATION));
    *body_bytes = 0;
    MHD_Response* response = MHD_create_response_from_buffer(reply.body.size(), reply.body.data(),
                                                             MHD_RESPMEM_MUST_COPY);
    if (response == nullptr) return MHD_NO;
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
      // A browser then prompts for a password, which is the token.
      MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE,
                              "Basic realm=\"Hilbert Ring: the password is a token\"");
    }
    const MHD_Result queued =
        MHD_queue_response(connection, static_cast<unsigned>(reply.status), response);
    MHD_destroy_response(response);
    return queued;
  }

  HttpReply ReplyTo(std::string_view method, const Target& target,
                    std::string_view authorization) const {
    if (loopback_alone_ && !target.host.empty() && !IsLoopbackAuthority(target.host)) {
      return {.status = MHD_HTTP_MISDIRECTED_REQUEST,
              .body = absl::StrCat("Host is ", wire::Legible(target.host, kMostHostShown),
                                   ", must be localhost or a loopback address (--http-host)\n")};
    }
    if (method != MHD_HTTP_METHOD_GET && method != MHD_HTTP_METHOD_HEAD) {
      return {.status = MHD_HTTP_METHOD_NOT_ALLOWED, .body = "the method must be GET or HEAD\n"};
    }
    const auto route = routes_.find(target.path);
    if (route == routes_.end()) return {.status = MHD_HTTP_NOT_FOUND, .body = "not found\n"};
    const std::lock_guard lock(answering_);
    return route->second(authorization);
  }

  const std::map<std::string, Handler> routes_;
  const TlsFiles files_;
  const std::function<void(const std::string& pem)> on_shown_;
  // A page of another site may lead its own name to this machine (DNS rebinding); the browser shows
  // the page the answer. With TLS other names would need a certificate.
  const bool loopback_alone_;
  mutable std::mutex answering_;  // two servers answer after a new certificate
  int port_ = 0;
  // The watch's, once it runs.
  TlsTexts shown_;
  absl::Status logged_;
  Daemon before_{nullptr, &MHD_stop_daemon};
  Mutex serving_;
  Daemon daemon_ ABSL_GUARDED_BY(serving_){nullptr, &MHD_stop_daemon};
  // Last: they use all of the above.
  std::optional<ConnectionListener> listener_;
  std::optional<IntervalThread> watch_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpEndpoint>> HttpEndpoint::Start(
    const std::string& host, int port, std::map<std::string, Handler> routes, HttpTls tls) {
  ASSIGN_OR_RETURN(auto sockets, ListeningSockets::Open("http (--http-port)", host, port));
  auto endpoint = std::make_unique<MicroHttpEndpoint>(host, std::move(routes), std::move(tls));
  RETURN_IF_ERROR(endpoint->Serve(std::move(sockets)));
  return endpoint;
}

}  // namespace hilbert_ring::server
