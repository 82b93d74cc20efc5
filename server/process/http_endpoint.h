// The HTTP port, by libmicrohttpd: a few paths that answer GET and HEAD. A connection has one
// request and ends after 5 s of silence; silent connections do not delay others. With a certificate
// it is HTTPS. The files are checked once a second; new ones count for new connections.
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

struct HttpTls {
  std::string cert, key;  // in PEM, after CheckTlsFiles; empty: clear text
  // Called with a certificate's PEM when new connections get it. May be null.
  std::function<void(const std::string& pem)> shown;
};

class HttpEndpoint {
 public:
  // Called with the request's Authorization header, or empty, by one thread, which it must not
  // block. Status 401 requests the header.
  using Handler = std::function<HttpReply(std::string_view authorization)>;

  // Port 0 takes a free one. Other paths are 404. UNAVAILABLE if the address is taken.
  static absl::StatusOr<std::unique_ptr<HttpEndpoint>> Start(const std::string& host, int port,
                                                             std::map<std::string, Handler> routes,
                                                             HttpTls tls = {});
  virtual ~HttpEndpoint() = default;
  virtual int port() const = 0;
};

}  // namespace hilbert_ring::server
