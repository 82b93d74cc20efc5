#include "wire/pem.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring::wire {
namespace {

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

// Curves of TLS 1.3 in OpenSSL's terms; GnuTLS and OpenSSL both accept them.
constexpr std::string_view kCurves[] = {"prime256v1", "secp384r1", "secp521r1"};
constexpr char kKinds[] = "RSA, Ed25519, Ed448 or on the curve P-256, P-384 or P-521";

// OpenSSL would prompt for the passphrase of a key.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*rwflag*/, void* /*user*/) { return 0; }

absl::Status Wrong(const PemText& pem, absl::string_view what) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat(pem.name, " ", what));
}

Bio BioOf(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free);
}

// Reads all certificates: a file that is being written may end anywhere.
absl::StatusOr<std::vector<Certificate>> Certificates(const PemText& pem) {
  const Bio text = BioOf(pem.text);
  std::vector<Certificate> certificates;
  ERR_clear_error();
  while (X509* const one = PEM_read_bio_X509(text.get(), nullptr, NoPassphrase, nullptr)) {
    certificates.emplace_back(one, &X509_free);
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (!at_end) return Wrong(pem, "holds a certificate that is damaged or cut off");
  if (certificates.empty()) return Wrong(pem, "holds no certificate in PEM");
  ERR_clear_error();
  return certificates;
}

absl::Status CheckKind(const PemText& pem, EVP_PKEY* key) {
  std::array<char, 64> curve = {};
  size_t length = 0;
  switch (EVP_PKEY_get_base_id(key)) {
    case EVP_PKEY_RSA:
    case EVP_PKEY_RSA_PSS:
    case EVP_PKEY_ED25519:
    case EVP_PKEY_ED448:
      return absl::OkStatus();
    case EVP_PKEY_EC:
      if (EVP_PKEY_get_group_name(key, curve.data(), curve.size(), &length) != 1) {
        return Wrong(pem, absl::StrCat("holds a key on a curve without a name, must be ", kKinds));
      }
      if (std::ranges::find(kCurves, std::string_view(curve.data(), length)) != std::end(kCurves)) {
        return absl::OkStatus();
      }
      return Wrong(
          pem, absl::StrCat("holds a key on the curve ", absl::string_view(curve.data(), length),
                            ", must be ", kKinds));
    default:
      const char* const kind = EVP_PKEY_get0_type_name(key);
      return Wrong(pem, absl::StrCat("holds a key of the kind ", kind == nullptr ? "none" : kind,
                                     ", must be ", kKinds));
  }
}

absl::StatusOr<Key> KeyOf(const PemText& pem) {
  const Bio text = BioOf(pem.text);
  Key key(PEM_read_bio_PrivateKey(text.get(), nullptr, NoPassphrase, nullptr), &EVP_PKEY_free);
  if (key == nullptr) return Wrong(pem, "holds no key in PEM without a passphrase");
  ERR_clear_error();
  RETURN_IF_ERROR(CheckKind(pem, key.get()));
  return key;
}

// Checks the certificate against the security level of this machine's OpenSSL, as gRPC does.
absl::Status CheckTaken(const PemText& pem, X509* certificate) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_method()),
                                                                  &SSL_CTX_free);
  if (context != nullptr && SSL_CTX_use_certificate(context.get(), certificate) == 1) {
    return absl::OkStatus();
  }
  const char* const why = ERR_reason_error_string(ERR_peek_last_error());
  return Wrong(pem, absl::StrCat("holds a certificate that OpenSSL does not take: ",
                                 why == nullptr ? "no reason" : why));
}

// Writes a new text, because the files may hold more, such as each other's content.
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

absl::Status CheckAuthorities(const PemText& ca) { return Certificates(ca).status(); }

absl::StatusOr<std::string> CheckIdentity(const PemText& cert, const PemText& key) {
  ASSIGN_OR_RETURN(const auto chain, Certificates(cert));
  ASSIGN_OR_RETURN(const Key own, KeyOf(key));
  if (X509_check_private_key(chain.front().get(), own.get()) != 1) {
    return Wrong(key, absl::StrCat("is not the key of the certificate in ", cert.name));
  }
  RETURN_IF_ERROR(CheckTaken(cert, chain.front().get()));
  return OneText(chain, own.get());
}

}  // namespace hilbert_ring::wire
