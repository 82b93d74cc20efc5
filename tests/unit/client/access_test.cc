#include "client/cpp/access.h"

#include <fstream>
#include <string>

#include "client/cpp/service.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/certificates.h"
#include "tests/support/test_folder.h"

namespace hilbert_ring::client {
namespace {

using ::testing::HasSubstr;

// Before anything is sent, by the programs and by the library alone.
TEST(Access, FilesThatAreNotRightAreNamed) {
  const testing::TestFolder folder;
  const testing::CertificateAuthority authority;
  const std::string ca = folder / "ca.crt", cert = folder / "a.crt", key = folder / "a.key";
  authority.WriteTo(ca);
  authority.Issue({}, cert, key);
  authority.Issue({}, folder / "b.crt", folder / "b.key");
  authority.Issue({.passphrase = "secret"}, folder / "c.crt", folder / "c.key");
  std::ofstream(folder / "words") << "no certificate\n";
  std::ofstream(folder / "half") << testing::FileText(ca).substr(0, 300);
  EXPECT_TRUE(CheckAccess("localhost:1", {.tls = true, .ca = ca, .cert = cert, .key = key}).ok());
  const auto wrong = [](const Access& access, const std::string& named, const char* why) {
    const absl::Status checked = CheckAccess("localhost:1", access);
    const absl::Status called = RequestCluster(Connect("localhost:1", access)).status();
    for (const absl::Status& status : {checked, called}) {
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(named));
      EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    }
  };
  const std::string words = folder / "words", half = folder / "half";
  wrong({.tls = true, .ca = words}, "--ca: " + words, "holds no certificate in PEM");
  wrong({.tls = true, .ca = half}, "--ca: " + half, "is damaged or cut off");
  wrong({.tls = true, .ca = key}, "--ca: " + key, "holds no certificate in PEM");
  wrong({.tls = true, .cert = half, .key = key}, "--cert: " + half, "is damaged or cut off");
  wrong({.tls = true, .cert = cert, .key = cert}, "--key: " + cert, "holds no key in PEM");
  wrong({.tls = true, .cert = cert, .key = folder / "b.key"}, "b.key",
        "is not the key of the certificate in --cert: ");
  wrong({.tls = true, .cert = folder / "c.crt", .key = folder / "c.key"}, "c.key",
        "holds no key in PEM without a passphrase");
}

}  // namespace
}  // namespace hilbert_ring::client
