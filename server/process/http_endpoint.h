// The HTTP port, by libmicrohttpd: a few paths that answer GET and HEAD. A connection has one
// request, and ends after 5 s of silence; one that says nothing keeps none of the others waiting.
// With a certificate it is HTTPS; the files are looked at once a second, and new ones count for the
// connections that are made from then on.
//
//   auto http = HttpEndpoint::Start("127.0.0.1", 8002, {{"/livez", [](std::string_view) {
//                                                          return HttpReply{.body = "ok\n"};
//                                                        }}});
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

// Files in PEM, which CheckTlsFiles has found right; empty: clear text.
struct HttpTls {
  std::string cert, key;
  // Told of the certificate's PEM when it is shown from then on. Null: nobody is.
  std::function<void(const std::string& pem)> shown;
};

class HttpEndpoint {
 public:
  // Called by one thread, which it must not block, with the request's Authorization header; empty:
  // it has none. A reply of status 401 asks for one.
  using Handler = std::function<HttpReply(std::string_view authorization)>;

  // Port 0 takes a free one. Other paths than those of `routes` are 404. UNAVAILABLE, naming host
  // and port, when they cannot be listened on.
  static absl::StatusOr<std::unique_ptr<HttpEndpoint>> Start(const std::string& host, int port,
                                                             std::map<std::string, Handler> routes,
                                                             HttpTls tls = {});
  virtual ~HttpEndpoint() = default;
  virtual int port() const = 0;
};

}  // namespace hilbert_ring::server
