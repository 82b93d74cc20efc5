#include "server/process/tokens.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "grpc/grpc_security_constants.h"
#include "server/process/regular_file.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr char kJoinTokenKey[] = "hilbert-ring-join-token";
constexpr char kCallTokenKey[] = "hilbert-ring-call-token-bin";  // a draw, then its proof
constexpr size_t kDrawBytes = 16;
constexpr size_t kProofBytes = 32;
constexpr size_t kMostTokenBytes = 4096;
constexpr size_t kMostTokenFileBytes = 2 * kMostTokenBytes;  // with surrounding white space

// Takes the same time wherever they differ.
bool Same(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string ProofOf(const std::string& secret, absl::string_view call, absl::string_view draw) {
  const std::string message = absl::StrCat(call, ":", draw);
  std::array<unsigned char, EVP_MAX_MD_SIZE> proof;
  unsigned int bytes = 0;
  const void* const made = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                                reinterpret_cast<const unsigned char*>(message.data()),
                                message.size(), proof.data(), &bytes);
  if (made == nullptr) return "";  // which no proof equals
  return std::string(reinterpret_cast<const char*>(proof.data()), bytes);
}

absl::StatusOr<std::string> DrawBytes(size_t count) {
  std::string bytes(count, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1) {
    return absl::UnavailableError("the system has no random bytes");
  }
  return bytes;
}

const grpc::string_ref* Metadata(const grpc::ServerContextBase& context, const char* key) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(key);
  return found == metadata.end() ? nullptr : &found->second;
}

}  // namespace

absl::StatusOr<std::string> ReadTokenFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadRegularFile(path, kMostTokenFileBytes);
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        absl::StrCat("--join-token-file: ", path, " ", text.status().message()));
  }
  const std::string token(absl::StripAsciiWhitespace(*text));
  const bool printable =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (token.size() < kLeastTokenBytes || token.size() > kMostTokenBytes || !printable) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--join-token-file: ", path, " must hold one token of ", kLeastTokenBytes, " to ",
        kMostTokenBytes, " printable ASCII characters, it has ", token.size(), " bytes"));
  }
  return token;
}

absl::StatusOr<std::string> DrawSecret() {
  ASSIGN_OR_RETURN(auto bytes, DrawBytes(kProofBytes));
  return absl::BytesToHexString(bytes);
}

void AddJoinToken(grpc::ClientContext& context, const std::string& token) {
  if (!token.empty()) context.AddMetadata(kJoinTokenKey, token);
}

absl::Status CheckJoinToken(const grpc::ServerContextBase& context, const std::string& token) {
  if (token.empty()) return absl::OkStatus();
  const grpc::string_ref* const given = Metadata(context, kJoinTokenKey);
  if (given == nullptr) {
    return wire::ErrorOf(wire::reason::kJoinToken,
                         "the coordinator requires a join token (--join-token-file)");
  }
  if (!Same({given->data(), given->size()}, token)) {
    return wire::ErrorOf(wire::reason::kJoinToken,
                         "the join token is not the coordinator's (--join-token-file)");
  }
  return absl::OkStatus();
}

absl::Status CheckPeerName(const grpc::ServerContextBase& context, const std::string& name) {
  if (name.empty()) return absl::OkStatus();
  const auto peer = context.auth_context();
  for (const char* property : {GRPC_X509_SAN_PROPERTY_NAME, GRPC_X509_CN_PROPERTY_NAME}) {
    if (peer == nullptr) break;
    const auto names = peer->FindPropertyValues(property);
    if (std::find(names.begin(), names.end(), name) != names.end()) return absl::OkStatus();
  }
  return wire::ErrorOf(
      wire::reason::kPeerName,
      absl::StrCat("the worker's certificate does not have the name ", name, " (--tls-peer-name)"));
}

void AddCallToken(grpc::ClientContext& context, const std::string& secret, absl::string_view call) {
  const auto draw = DrawBytes(kDrawBytes);
  if (!draw.ok() || secret.empty()) return;  // the worker refuses the call
  context.AddMetadata(kCallTokenKey, absl::StrCat(*draw, ProofOf(secret, call, *draw)));
}

absl::Status CheckCallToken(const grpc::ServerContextBase& context, const std::string& secret,
                            absl::string_view call) {
  const grpc::string_ref* const given = Metadata(context, kCallTokenKey);
  const absl::string_view token =
      given == nullptr ? "" : absl::string_view(given->data(), given->size());
  if (!secret.empty() && token.size() == kDrawBytes + kProofBytes &&
      Same(token.substr(kDrawBytes), ProofOf(secret, call, token.substr(0, kDrawBytes)))) {
    return absl::OkStatus();
  }
  return wire::ErrorOf(
      wire::reason::kJoinToken,
      absl::StrCat(call,
                   " requires a token of the coordinator at which this worker is registered"));
}

}  // namespace hilbert_ring::server
