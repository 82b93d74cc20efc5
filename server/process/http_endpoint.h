// The HTTP port, by libmicrohttpd: a few paths that answer GET and HEAD. A connection has one
// request and ends after 5 s of silence; one that says nothing keeps none of the others waiting.
// With a certificate it is HTTPS; the files are looked at once a second, and new ones count for the
// connections that are made from then on.
//
//   auto http = HttpEndpoint::Start("0.0.0.0", 8002, {{"/livez", [] { return HttpReply{.body =
//   "ok\n"}; }}});
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hilbert_ring::server {

struct HttpReply {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

struct HttpGuard {
  std::string cert, key;  // files in PEM, which CheckTlsFiles has found right; empty: clear text
  // Whether a request with this Authorization header, empty without one, may see what the path has;
  // 401 where it may not. Empty: all may. Called as a handler is.
  std::function<bool(const std::string& path, std::string_view authorization)> allows;
};

class HttpEndpoint {
 public:
  using Handler = std::function<HttpReply()>;  // called by one thread, which it must not block

  // Port 0 takes a free one. Other paths than those of `routes` are 404. UNAVAILABLE, naming host
  // and port, when they cannot be listened on.
  static absl::StatusOr<std::unique_ptr<HttpEndpoint>> Start(const std::string& host, int port,
                                                             std::map<std::string, Handler> routes,
                                                             HttpGuard guard = {});
  virtual ~HttpEndpoint() = default;
  virtual int port() const = 0;
};

}  // namespace hilbert_ring::server
