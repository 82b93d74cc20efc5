// An HTTP GET, over TLS where it is asked for.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace hilbert_ring::testing {

struct HttpRequest {
  int port = 0;  // of 127.0.0.1
  std::string path;
  std::string ca;             // a file in PEM: HTTPS; empty: clear text
  std::string authorization;  // a header; empty: none
};

struct HttpAnswer {
  int status = 0;
  std::string body;
};

// UNAVAILABLE when there is no answer, because the certificate is not of the CA, for example.
absl::StatusOr<HttpAnswer> HttpGet(const HttpRequest& request);

}  // namespace hilbert_ring::testing
