#include "server/process/tls.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/return_if_error.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "server/process/interval_thread.h"

namespace hilbert_ring::server {
namespace {

absl::Status NoMemory(int error) {
  return absl::UnavailableError(
      absl::ErrnoToStatus(error, "memory for copies of TLS files").message());
}

bool WriteAll(int memory, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t bytes = write(memory, text.data(), text.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return false;
    text.remove_prefix(static_cast<size_t>(bytes));
  }
  return true;
}

// The caller owns the descriptor.
absl::StatusOr<int> MemoryWith(absl::string_view text, int64_t version) {
  const int memory = memfd_create("hilbert-ring-tls", MFD_CLOEXEC);
  if (memory < 0) return NoMemory(errno);
  const std::array<timespec, 2> times = {{{.tv_sec = version}, {.tv_sec = version}}};
  if (WriteAll(memory, text) && fchmod(memory, S_IRUSR) == 0 &&
      futimens(memory, times.data()) == 0) {
    return memory;
  }
  const int error = errno;
  close(memory);
  return NoMemory(error);
}

// Replaces the file atomically for readers of the number's path.
absl::Status PutInPlace(int memory, int& number) {
  if (number < 0) {
    number = memory;
    return absl::OkStatus();
  }
  const bool done = dup3(memory, number, O_CLOEXEC) >= 0;
  const int error = errno;
  close(memory);
  return done ? absl::OkStatus() : NoMemory(error);
}

std::string PathOf(int number) { return absl::StrCat("/proc/self/fd/", number); }

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

TlsCopies::TlsCopies(TlsFiles files, std::string port)
    : files_(std::move(files)), port_(std::move(port)) {}

absl::StatusOr<std::unique_ptr<TlsCopies>> TlsCopies::Make(TlsFiles files, std::string port) {
  std::unique_ptr<TlsCopies> copies(new TlsCopies(std::move(files), std::move(port)));
  ASSIGN_OR_RETURN(const TlsTexts texts, ReadTlsFiles(copies->files_));
  RETURN_IF_ERROR(copies->Copy(texts));
  copies->paths_.cert = copies->paths_.key = PathOf(copies->identity_);
  if (copies->ca_ >= 0) copies->paths_.ca = PathOf(copies->ca_);
  return copies;
}

absl::Status TlsCopies::Copy(const TlsTexts& texts) {
  ASSIGN_OR_RETURN(const std::string identity, IdentityOf(files_, texts));
  ++version_;
  if (!files_.ca.empty()) {
    ASSIGN_OR_RETURN(const int ca, MemoryWith(texts.ca, version_));
    RETURN_IF_ERROR(PutInPlace(ca, ca_));
  }
  ASSIGN_OR_RETURN(const int memory, MemoryWith(identity, version_));
  RETURN_IF_ERROR(PutInPlace(memory, identity_));
  texts_ = texts;
  return absl::OkStatus();
}

absl::Status TlsCopies::Renew(const TlsTexts& texts) {
  RETURN_IF_ERROR(IdentityOf(files_, texts).status());
  const auto again = ReadTlsFiles(files_);
  if (!again.ok() || *again != texts) return absl::OkStatus();  // changed during the check
  return Copy(texts);
}

void TlsCopies::Look() {
  const auto texts = ReadTlsFiles(files_);
  if (texts.ok() && *texts == texts_) {
    logged_ = absl::OkStatus();
    return;
  }
  absl::Status status = texts.ok() ? Renew(*texts) : texts.status();
  if (!status.ok() && status != std::exchange(logged_, status)) {
    spdlog::error("gRPC ({}) keeps its certificate: {}", port_, std::string(status.message()));
  }
}

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
