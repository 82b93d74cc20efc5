#include "server/process/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "server/process/regular_file.h"

namespace hilbert_ring::server {
namespace {

constexpr char kCertFlag[] = "--tls-cert", kKeyFlag[] = "--tls-key", kCaFlag[] = "a CA's file";

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

// A key with a passphrase would wait for somebody to type it.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*rwflag*/, void* /*user*/) { return 0; }

absl::Status Wrong(const char* flag, const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", path, " ", what));
}

absl::StatusOr<std::string> ReadPem(const char* flag, const std::string& path) {
  auto pem = ReadRegularFile(path, kMostPemBytes);
  if (!pem.ok()) return Wrong(flag, path, pem.status().message());
  return pem;
}

Bio BioOf(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free);
}

// A file that is being written ends anywhere: all of it counts, not the first certificate alone.
absl::StatusOr<std::vector<Certificate>> Certificates(const char* flag, const std::string& path,
                                                      const std::string& pem) {
  const Bio text = BioOf(pem);
  std::vector<Certificate> certificates;
  ERR_clear_error();
  while (X509* const one = PEM_read_bio_X509(text.get(), nullptr, NoPassphrase, nullptr)) {
    certificates.emplace_back(one, &X509_free);
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (certificates.empty()) return Wrong(flag, path, "holds no certificate in PEM");
  if (!at_end) return Wrong(flag, path, "holds a certificate that is damaged or cut off");
  return certificates;
}

absl::StatusOr<Key> KeyOf(const std::string& path, const std::string& pem) {
  const Bio text = BioOf(pem);
  Key key(PEM_read_bio_PrivateKey(text.get(), nullptr, NoPassphrase, nullptr), &EVP_PKEY_free);
  ERR_clear_error();
  if (key == nullptr) return Wrong(kKeyFlag, path, "holds no key in PEM without a passphrase");
  return key;
}

// Written anew: the files may hold other things besides, as each the other's.
absl::StatusOr<std::string> OneText(const std::vector<Certificate>& chain, EVP_PKEY* key) {
  const Bio text(BIO_new(BIO_s_mem()), &BIO_free);
  bool written = text != nullptr;
  for (const Certificate& one : chain) {
    written = written && PEM_write_bio_X509(text.get(), one.get()) == 1;
  }
  written = written &&
            PEM_write_bio_PrivateKey(text.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1;
  if (!written) return absl::InternalError("OpenSSL writes no PEM");
  const char* data = nullptr;
  const long bytes = BIO_get_mem_data(text.get(), &data);
  return std::string(data, static_cast<size_t>(bytes));
}

}  // namespace

absl::StatusOr<TlsTexts> ReadTlsFiles(const TlsFiles& files) {
  TlsTexts texts;
  ASSIGN_OR_RETURN(texts.cert, ReadPem(kCertFlag, files.cert));
  ASSIGN_OR_RETURN(texts.key, ReadPem(kKeyFlag, files.key));
  if (!files.ca.empty()) {
    ASSIGN_OR_RETURN(texts.ca, ReadPem(kCaFlag, files.ca));
  }
  return texts;
}

absl::StatusOr<std::string> IdentityOf(const TlsFiles& files, const TlsTexts& texts) {
  ASSIGN_OR_RETURN(const auto chain, Certificates(kCertFlag, files.cert, texts.cert));
  ASSIGN_OR_RETURN(const Key key, KeyOf(files.key, texts.key));
  if (X509_check_private_key(chain.front().get(), key.get()) != 1) {
    ERR_clear_error();
    return Wrong(kKeyFlag, files.key,
                 absl::StrCat("is not the key of the certificate in ", files.cert));
  }
  if (!files.ca.empty()) RETURN_IF_ERROR(Certificates(kCaFlag, files.ca, texts.ca).status());
  return OneText(chain, key.get());
}

absl::Status CheckTlsFiles(const TlsFiles& files) {
  ASSIGN_OR_RETURN(const TlsTexts texts, ReadTlsFiles(files));
  return IdentityOf(files, texts).status();
}

}  // namespace hilbert_ring::server
