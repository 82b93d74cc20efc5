#include "client/cpp/access.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/errors.h"
#include "engine/base/return_if_error.h"
#include "wire/pem.h"
#include "wire/server_address.h"

namespace hilbert_ring::client {
namespace {

constexpr size_t kMostTokenBytes = 4096;
constexpr size_t kMostFileBytes = 1 << 20;
constexpr absl::Duration kLeastKeepalive = absl::Seconds(10);  // the service's limit is one in 5 s
constexpr absl::Duration kMostKeepalive = absl::Hours(24);

absl::StatusOr<std::string> ReadSmallFile(const Access& access, const char* option,
                                          const std::string& path, size_t most) {
  if (const auto read = access.pipes.find(path); read != access.pipes.end()) return read->second;
  if (absl::Status status = CheckPath(path); !status.ok()) return status;
  std::ifstream file(path, std::ios::binary);
  std::string text(most + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (file.bad() || !file.is_open()) {
    return absl::InvalidArgumentError(absl::StrCat(option, ": cannot read ", path));
  }
  if (text.size() > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": ", path, " has more than ", most, " bytes"));
  }
  return text;
}

absl::StatusOr<wire::PemText> ReadPem(const Access& access, const char* option,
                                      const std::string& path) {
  auto text = ReadSmallFile(access, option, path, kMostFileBytes);
  if (!text.ok()) return text.status();
  return wire::PemText{.name = absl::StrCat(option, ": ", path), .text = *std::move(text)};
}

absl::StatusOr<grpc::SslCredentialsOptions> ReadFiles(const Access& access) {
  grpc::SslCredentialsOptions files;
  if (!access.ca.empty()) {
    ASSIGN_OR_RETURN(auto ca, ReadPem(access, "--ca", access.ca));
    RETURN_IF_ERROR(wire::CheckAuthorities(ca));
    files.pem_root_certs = std::move(ca.text);
  }
  if (!access.cert.empty() || !access.key.empty()) {
    ASSIGN_OR_RETURN(const auto cert, ReadPem(access, "--cert", access.cert));
    ASSIGN_OR_RETURN(const auto key, ReadPem(access, "--key", access.key));
    ASSIGN_OR_RETURN(files.pem_cert_chain, wire::CheckIdentity(cert, key));
    files.pem_private_key = files.pem_cert_chain;
  }
  return files;
}

bool OnThisHost(std::string_view server) {
  for (const std::string_view prefix : {"dns:///", "ipv4:", "ipv6:"}) {
    if (server.starts_with(prefix)) server.remove_prefix(prefix.size());
  }
  if (server.starts_with("unix:")) return true;
  const std::string_view host = server.substr(0, server.rfind(':'));
  if (host == "localhost" || host == "[::1]") return true;
  return host.starts_with("127.") &&
         host.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

absl::Status ReadPipes(Access& access) {
  for (const auto& [option, path, most] :
       {std::tuple("--ca", &access.ca, kMostFileBytes),
        std::tuple("--cert", &access.cert, kMostFileBytes),
        std::tuple("--key", &access.key, kMostFileBytes),
        std::tuple("--token-file", &access.token_file, kMostTokenBytes)}) {
    if (std::error_code error; !std::filesystem::is_fifo(*path, error)) continue;
    auto text = ReadSmallFile(access, option, *path, most);
    if (!text.ok()) return text.status();
    access.pipes.emplace(*path, *std::move(text));
  }
  return absl::OkStatus();
}

absl::Status WrongKeepalive(const std::string& given) {
  return absl::InvalidArgumentError(
      absl::StrCat("--keepalive-interval is ", given, ", must be 10 to 86400 seconds"));
}

absl::Status CheckKeepalive(const Access& access) {
  const absl::Duration interval = access.keepalive_interval;
  const bool right = interval == absl::ZeroDuration() ||
                     (interval >= kLeastKeepalive && interval <= kMostKeepalive);
  if (right) return absl::OkStatus();
  return WrongKeepalive(absl::StrCat(absl::ToDoubleSeconds(interval)));
}

absl::Status CheckAccess(const std::string& server, const Access& access) {
  if (access.cert.empty() != access.key.empty()) {
    return absl::InvalidArgumentError("--cert and --key go together");
  }
  const bool files = !access.ca.empty() || !access.cert.empty() || !access.server_name.empty();
  if (files && !access.tls) {
    return absl::InvalidArgumentError("--ca, --cert, --key and --server-name need --tls");
  }
  if (absl::Status name = wire::CheckServerName("--server-name", access.server_name); !name.ok()) {
    return name;
  }
  if (absl::Status keepalive = CheckKeepalive(access); !keepalive.ok()) return keepalive;
  if (!access.token.empty() && !access.token_file.empty()) {
    return absl::InvalidArgumentError("a token and a token file are given, only one may be");
  }
  if (auto read = ReadFiles(access); !read.ok()) return read.status();
  const auto token = TokenOf(access);
  if (!token.ok()) return token.status();
  if (!token->empty() && !access.tls && !access.insecure && !OnThisHost(server)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a token would go to ", server, " in clear text: --tls encrypts it, --insecure sends it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsOf(const Access& access) {
  if (!access.tls) return grpc::InsecureChannelCredentials();
  ASSIGN_OR_RETURN(const auto files, ReadFiles(access));
  return grpc::SslCredentials(files);
}

absl::StatusOr<std::string> TokenOf(const Access& access) {
  std::string text = access.token;
  if (!access.token_file.empty()) {
    auto read = ReadSmallFile(access, "--token-file", access.token_file, kMostTokenBytes);
    if (!read.ok()) return read.status();
    text = *std::move(read);
  } else if (text.empty()) {
    return text;
  }
  const std::string token(absl::StripAsciiWhitespace(text));
  const bool printable =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (token.empty() || !printable || token.size() > kMostTokenBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(access.token_file.empty() ? "HILBERT_RING_TOKEN" : access.token_file,
                     " must hold one token of printable ASCII characters"));
  }
  return token;
}

}  // namespace hilbert_ring::client
