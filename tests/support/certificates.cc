#include "tests/support/certificates.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstdlib>

namespace hilbert_ring::testing {
namespace {

using Key = std::shared_ptr<EVP_PKEY>;
using Certificate = std::shared_ptr<X509>;

void Require(bool done, const char* what) {
  if (done) return;
  std::fprintf(stderr, "certificates: %s failed\n", what);
  std::abort();
}

Key NewKey(const std::string& curve) { return Key(EVP_EC_gen(curve.c_str()), &EVP_PKEY_free); }

void AddExtension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  Require(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1, value.c_str());
  X509_EXTENSION_free(extension);
}

// A null issuer makes a certificate that signs itself.
Certificate NewCertificate(const CertificateRequest& request, EVP_PKEY* key, X509* issuer) {
  Certificate certificate(X509_new(), &X509_free);
  X509* const made = certificate.get();
  X509_set_version(made, 2);
  uint64_t serial = 0;
  Require(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial)) == 1, "RAND_bytes");
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(made), serial >> 1);
  X509_gmtime_adj(X509_getm_notBefore(made), request.valid_from);
  X509_gmtime_adj(X509_getm_notAfter(made), request.valid_until);
  if (!request.common_name.empty()) {
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(request.common_name.c_str()),
                               -1, -1, 0);
  }
  X509_set_issuer_name(made, X509_get_subject_name(issuer == nullptr ? made : issuer));
  X509_set_pubkey(made, key);
  return certificate;
}

void Write(const std::string& path, X509* certificate, EVP_PKEY* key,
           const std::string& passphrase = "") {
  const std::string beside = path + ".new";
  BIO* const file = BIO_new_file(beside.c_str(), "w");
  Require(file != nullptr, beside.c_str());
  const int done =
      certificate != nullptr
          ? PEM_write_bio_X509(file, certificate)
          : PEM_write_bio_PrivateKey(file, key, passphrase.empty() ? nullptr : EVP_aes_128_cbc(),
                                     nullptr, 0, nullptr, const_cast<char*>(passphrase.c_str()));
  BIO_free(file);
  Require(done == 1 && std::rename(beside.c_str(), path.c_str()) == 0, path.c_str());
}

}  // namespace

CertificateAuthority::CertificateAuthority() : key_(NewKey("P-256")) {
  certificate_ = NewCertificate({.common_name = "authority"}, key_.get(), nullptr);
  AddExtension(certificate_.get(), certificate_.get(), NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(certificate_.get(), certificate_.get(), NID_key_usage, "critical,keyCertSign");
  AddExtension(certificate_.get(), certificate_.get(), NID_subject_key_identifier, "hash");
  Require(X509_sign(certificate_.get(), key_.get(), EVP_sha256()) > 0, "X509_sign");
}

void CertificateAuthority::WriteTo(const std::string& path) const {
  Write(path, certificate_.get(), nullptr);
}

void CertificateAuthority::Issue(const CertificateRequest& request, const std::string& cert_path,
                                 const std::string& key_path) const {
  const Key key = NewKey(request.curve);
  const Certificate certificate = NewCertificate(request, key.get(), certificate_.get());
  if (!request.alternative_names.empty()) {
    AddExtension(certificate.get(), certificate_.get(), NID_subject_alt_name,
                 request.alternative_names);
  }
  AddExtension(certificate.get(), certificate_.get(), NID_authority_key_identifier, "keyid");
  Require(X509_sign(certificate.get(), key_.get(), EVP_sha256()) > 0, "X509_sign");
  Write(key_path, nullptr, key.get(), request.passphrase);
  Write(cert_path, certificate.get(), nullptr);
}

}  // namespace hilbert_ring::testing
