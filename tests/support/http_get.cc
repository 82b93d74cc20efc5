#include "tests/support/http_get.h"

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <csignal>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace hilbert_ring::testing {
namespace {

using Connection = std::unique_ptr<BIO, decltype(&BIO_free_all)>;
using Context = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

absl::Status NoAnswer(const char* what) { return absl::UnavailableError(what); }

}  // namespace

absl::StatusOr<HttpAnswer> HttpGet(const HttpRequest& request) {
  // OpenSSL may write to a closed connection.
  [[maybe_unused]] static const auto before = std::signal(SIGPIPE, SIG_IGN);
  const std::string host = absl::StrCat("127.0.0.1:", request.port);
  const Context context(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  Connection connection(nullptr, &BIO_free_all);
  if (request.ca.empty()) {
    connection.reset(BIO_new_connect(host.c_str()));
  } else {
    if (SSL_CTX_load_verify_locations(context.get(), request.ca.c_str(), nullptr) != 1) {
      return NoAnswer("the CA's file cannot be read");
    }
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    connection.reset(BIO_new_ssl_connect(context.get()));
    SSL* tls = nullptr;
    BIO_get_ssl(connection.get(), &tls);
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), "127.0.0.1");
    BIO_set_conn_hostname(connection.get(), host.c_str());
  }
  if (BIO_do_connect(connection.get()) != 1) return NoAnswer("no connection");
  if (!request.ca.empty() && BIO_do_handshake(connection.get()) != 1) return NoAnswer("no TLS");
  std::string text =
      absl::StrCat("GET ", request.path, " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n");
  if (!request.authorization.empty()) {
    absl::StrAppend(&text, "Authorization: ", request.authorization, "\r\n");
  }
  absl::StrAppend(&text, "\r\n");
  if (BIO_write(connection.get(), text.data(), static_cast<int>(text.size())) <= 0) {
    return NoAnswer("the request was not taken");
  }
  std::string answer;
  char buffer[4096];
  for (int n = 0; (n = BIO_read(connection.get(), buffer, sizeof(buffer))) > 0;) {
    answer.append(buffer, static_cast<size_t>(n));
  }
  const size_t body = answer.find("\r\n\r\n");
  HttpAnswer parsed;
  if (body == std::string::npos || answer.size() < 12 ||
      !absl::SimpleAtoi(answer.substr(9, 3), &parsed.status)) {
    return NoAnswer("no answer");
  }
  parsed.body = answer.substr(body + 4);
  return parsed;
}

}  // namespace hilbert_ring::testing
