#include "server/process/tls.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "server/process/regular_file.h"

namespace hilbert_ring::server {
namespace {

constexpr unsigned kReadAgainSeconds = 1;

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

// A key with a passphrase would wait for somebody to type it.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*rwflag*/, void* /*user*/) { return 0; }

absl::Status Wrong(const char* flag, const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", path, " ", what));
}

// In place of a file a pipe would be waited for, and again at each look of gRPC's.
absl::StatusOr<std::string> ReadPem(const char* flag, const std::string& path) {
  const auto pem = ReadRegularFile(path, kMostPemBytes);
  if (!pem.ok()) return Wrong(flag, path, pem.status().message());
  return *pem;
}

Bio BioOf(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free);
}

absl::StatusOr<Certificate> ReadCertificate(const char* flag, const std::string& path) {
  ASSIGN_OR_RETURN(const std::string pem, ReadPem(flag, path));
  const Bio text = BioOf(pem);
  Certificate certificate(PEM_read_bio_X509(text.get(), nullptr, NoPassphrase, nullptr),
                          &X509_free);
  if (certificate == nullptr) return Wrong(flag, path, "holds no certificate in PEM");
  return certificate;
}

absl::StatusOr<Key> ReadKey(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string pem, ReadPem("--tls-key", path));
  const Bio text = BioOf(pem);
  Key key(PEM_read_bio_PrivateKey(text.get(), nullptr, NoPassphrase, nullptr), &EVP_PKEY_free);
  if (key == nullptr) return Wrong("--tls-key", path, "holds no key in PEM without a passphrase");
  return key;
}

using grpc::experimental::FileWatcherCertificateProvider;

std::shared_ptr<FileWatcherCertificateProvider> Watch(const TlsFiles& files) {
  return std::make_shared<FileWatcherCertificateProvider>(files.key, files.cert, files.ca,
                                                          kReadAgainSeconds);
}

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files) {
  const auto certificate = ReadCertificate("--tls-cert", files.cert);
  if (!certificate.ok()) return certificate.status();
  const auto key = ReadKey(files.key);
  if (!key.ok()) return key.status();
  if (X509_check_private_key(certificate->get(), key->get()) != 1) {
    return Wrong("--tls-key", files.key,
                 absl::StrCat("is not the key of the certificate in ", files.cert));
  }
  if (files.ca.empty()) return absl::OkStatus();
  return ReadCertificate("a CA's file", files.ca).status();
}

std::shared_ptr<grpc::ServerCredentials> ServerCredentials(const TlsFiles& files) {
  grpc::experimental::TlsServerCredentialsOptions options(Watch(files));
  options.watch_identity_key_cert_pairs();
  if (!files.ca.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> CallCredentials(const TlsFiles& files) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(Watch(files));
  options.watch_identity_key_cert_pairs();
  options.watch_root_certs();
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace hilbert_ring::server
