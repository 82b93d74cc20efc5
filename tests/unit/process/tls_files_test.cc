#include "server/process/tls_files.h"

#include <sys/stat.h>

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/certificates.h"
#include "tests/support/test_folder.h"

namespace hilbert_ring::server {
namespace {

using testing::CertificateAuthority;
using ::testing::HasSubstr;

TEST(TlsFiles, AreCheckedBeforeTheyAreServed) {
  const testing::TestFolder files;
  const std::string folder = files.path() + "/";
  const CertificateAuthority authority;
  authority.WriteTo(folder + "ca.crt");
  authority.Issue({}, folder + "a.crt", folder + "a.key");
  authority.Issue({}, folder + "b.crt", folder + "b.key");
  authority.Issue({.valid_until = -60}, folder + "old.crt", folder + "old.key");
  std::ofstream(folder + "words") << "no certificate\n";
  const TlsFiles right = {folder + "a.crt", folder + "a.key", folder + "ca.crt"};
  EXPECT_TRUE(CheckTlsFiles(right).ok()) << CheckTlsFiles(right);
  EXPECT_TRUE(CheckTlsFiles({folder + "old.crt", folder + "old.key", ""}).ok())
      << "an expired certificate may be replaced";
  const auto wrong = [](const TlsFiles& files, const std::string& named, const char* why) {
    const absl::Status status = CheckTlsFiles(files);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(named));
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  };
  wrong({folder + "none", right.key, ""}, "none", "cannot be read");
  ASSERT_EQ(mkfifo((folder + "pipe").c_str(), 0600), 0);  // a read must not wait
  wrong({folder + "pipe", right.key, ""}, "pipe", "must be a regular file, is a FIFO");
  wrong({right.cert, folder + "pipe", ""}, "--tls-key", "must be a regular file, is a FIFO");
  wrong({right.cert, right.key, folder + "pipe"}, "--tls-ca", "must be a regular file, is a FIFO");
  wrong({folder + "words", right.key, ""}, "words", "holds no certificate");
  wrong({right.cert, folder + "words", ""}, "words", "holds no key");
  wrong({right.cert, folder + "b.key", ""}, "b.key", "is not the key of the certificate");
  wrong({right.cert, right.key, folder + "words"}, "words", "holds no certificate");
  authority.Issue({.passphrase = "secret"}, folder + "locked.crt", folder + "locked.key");
  wrong({folder + "locked.crt", folder + "locked.key", ""}, "locked.key", "without a passphrase");
  for (const char* curve : {"secp256k1", "secp224r1", "brainpoolP256r1"}) {
    authority.Issue({.curve = curve}, folder + "odd.crt", folder + "odd.key");
    wrong({folder + "odd.crt", folder + "odd.key", ""}, "odd.key", curve);
    wrong({folder + "odd.crt", folder + "odd.key", ""}, "odd.key", "P-256, P-384 or P-521");
  }
  authority.Issue({.curve = "P-521"}, folder + "long.crt", folder + "long.key");
  EXPECT_TRUE(CheckTlsFiles({folder + "long.crt", folder + "long.key", ""}).ok());
  const std::string cert = testing::FileText(right.cert), ca = testing::FileText(right.ca);
  std::ofstream(folder + "chain") << cert + ca;
  EXPECT_TRUE(CheckTlsFiles({folder + "chain", right.key, folder + "chain"}).ok());
  std::ofstream(folder + "half") << cert + ca.substr(0, ca.size() / 2);
  wrong({folder + "half", right.key, ""}, "half", "is damaged or cut off");
  wrong({right.cert, right.key, folder + "half"}, "half", "is damaged or cut off");
}

}  // namespace
}  // namespace hilbert_ring::server
