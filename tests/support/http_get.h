#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace hilbert_ring::testing {

struct HttpRequest {
  int port = 0;  // of 127.0.0.1
  std::string path;
  std::string ca;  // a file in PEM for HTTPS, or empty
  std::string authorization;
};

struct HttpAnswer {
  int status = 0;
  std::string body;
};

// UNAVAILABLE without an answer, for example if the certificate is not of the CA.
absl::StatusOr<HttpAnswer> HttpGet(const HttpRequest& request);

}  // namespace hilbert_ring::testing
