#include "server/process/tls.h"

#include <chrono>
#include <utility>

#include "engine/base/return_if_error.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "server/process/interval_thread.h"
#include "server/process/tls_copies.h"

namespace hilbert_ring::server {
namespace {

constexpr std::chrono::milliseconds kBetweenLooksAtFiles{500};
constexpr unsigned kReadCopiesAgainSeconds = 1;  // gRPC's least

using grpc::experimental::FileWatcherCertificateProvider;

std::shared_ptr<FileWatcherCertificateProvider> Watch(const TlsFiles& copies) {
  return std::make_shared<FileWatcherCertificateProvider>(copies.key, copies.cert, copies.ca,
                                                          kReadCopiesAgainSeconds);
}

// Credentials that check the files while they live.
template <typename Credentials>
std::shared_ptr<Credentials> Looking(std::unique_ptr<TlsCopies> copies,
                                     std::shared_ptr<Credentials> credentials) {
  struct Kept {
    Kept(std::unique_ptr<TlsCopies> files, std::shared_ptr<Credentials> of_them)
        : copies(std::move(files)), credentials(std::move(of_them)) {}
    const std::unique_ptr<TlsCopies> copies;
    const std::shared_ptr<Credentials> credentials;
    IntervalThread look{kBetweenLooksAtFiles, [this](const std::stop_token&) { copies->Look(); }};
  };
  const auto kept = std::make_shared<Kept>(std::move(copies), std::move(credentials));
  return std::shared_ptr<Credentials>(kept, kept->credentials.get());
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentials(const TlsFiles& files,
                                                                           std::string flag) {
  ASSIGN_OR_RETURN(auto copies, TlsCopies::Make(files, std::move(flag)));
  grpc::experimental::TlsServerCredentialsOptions options(Watch(copies->paths()));
  options.watch_identity_key_cert_pairs();
  if (!files.ca.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return Looking(std::move(copies), grpc::experimental::TlsServerCredentials(options));
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CallCredentials(const TlsFiles& files) {
  ASSIGN_OR_RETURN(auto copies, TlsCopies::Make(files, "calls"));
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(Watch(copies->paths()));
  options.watch_identity_key_cert_pairs();
  options.watch_root_certs();
  return Looking(std::move(copies), grpc::experimental::TlsCredentials(options));
}

}  // namespace hilbert_ring::server
