// An authority of the test and the certificates that it issues, in PEM.
//
//   const CertificateAuthority authority;
//   authority.WriteTo(folder + "/ca.crt");
//   authority.Issue({.alternative_names = "DNS:worker"}, folder + "/tls.crt", folder + "/tls.key");
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

namespace hilbert_ring::testing {

struct CertificateRequest {
  std::string common_name = "test";
  std::string alternative_names =
      "DNS:localhost,IP:127.0.0.1";  // as OpenSSL writes them; both names may be empty
  std::string curve = "P-256";       // of the key
  std::string passphrase;            // of the key's file
  // seconds from now
  long valid_from = -3600;
  long valid_until = 3600;
};

class CertificateAuthority {
 public:
  CertificateAuthority();

  void WriteTo(const std::string& path) const;

  // Each file replaces the old one by rename, the key first.
  void Issue(const CertificateRequest& request, const std::string& cert_path,
             const std::string& key_path) const;

 private:
  std::shared_ptr<EVP_PKEY> key_;
  std::shared_ptr<X509> certificate_;
};

}  // namespace hilbert_ring::testing
