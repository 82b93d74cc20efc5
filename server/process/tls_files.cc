#include "server/process/tls_files.h"

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "server/process/regular_file.h"
#include "wire/pem.h"

namespace hilbert_ring::server {
namespace {

std::string NameOf(const char* flag, const std::string& path) {
  return absl::StrCat(flag, ": ", path);
}

absl::StatusOr<std::string> ReadPem(const char* flag, const std::string& path) {
  auto pem = ReadRegularFile(path, kMostPemBytes);
  if (pem.ok()) return pem;
  return absl::InvalidArgumentError(absl::StrCat(NameOf(flag, path), " ", pem.status().message()));
}

}  // namespace

absl::StatusOr<TlsTexts> ReadTlsFiles(const TlsFiles& files) {
  TlsTexts texts;
  ASSIGN_OR_RETURN(texts.cert, ReadPem(files.cert_flag, files.cert));
  ASSIGN_OR_RETURN(texts.key, ReadPem(files.key_flag, files.key));
  if (!files.ca.empty()) {
    ASSIGN_OR_RETURN(texts.ca, ReadPem(files.ca_flag, files.ca));
  }
  return texts;
}

absl::StatusOr<std::string> IdentityOf(const TlsFiles& files, const TlsTexts& texts) {
  ASSIGN_OR_RETURN(auto identity,
                   wire::CheckIdentity({NameOf(files.cert_flag, files.cert), texts.cert},
                                       {NameOf(files.key_flag, files.key), texts.key}));
  if (!files.ca.empty()) {
    RETURN_IF_ERROR(wire::CheckAuthorities({NameOf(files.ca_flag, files.ca), texts.ca}));
  }
  return identity;
}

absl::Status CheckTlsFiles(const TlsFiles& files) {
  ASSIGN_OR_RETURN(const TlsTexts texts, ReadTlsFiles(files));
  return IdentityOf(files, texts).status();
}

}  // namespace hilbert_ring::server
