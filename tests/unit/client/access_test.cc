#include "client/cpp/access.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/service.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/certificates.h"
#include "tests/support/test_folder.h"

namespace hilbert_ring::client {
namespace {

using ::testing::HasSubstr;

// CheckAccess fails in the programs; a channel used without it fails with its first call.
TEST(Access, WhatIsNotRightIsNamed) {
  const testing::TestFolder folder;
  const testing::CertificateAuthority authority;
  const std::string ca = folder / "ca.crt", cert = folder / "a.crt", key = folder / "a.key";
  authority.WriteTo(ca);
  authority.Issue({}, cert, key);
  authority.Issue({}, folder / "b.crt", folder / "b.key");
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
  wrong({.tls = true, .ca = key}, "--ca: " + key, "holds no certificate in PEM");
  wrong({.tls = true, .cert = key, .key = key}, "--cert: " + key, "holds no certificate in PEM");
  wrong({.tls = true, .cert = cert, .key = cert}, "--key: " + cert, "holds no key in PEM");
  wrong({.tls = true, .cert = cert, .key = folder / "b.key"}, "b.key",
        "is not the key of the certificate in --cert: ");
}

TEST(Access, WhatAPipeHoldsIsReadOnce) {
  const testing::TestFolder folder;
  const testing::CertificateAuthority authority;
  authority.WriteTo(folder / "whole-ca");
  authority.Issue({}, folder / "whole-cert", folder / "whole-key");
  std::ofstream(folder / "whole-token") << "secret\n";
  Access access{.tls = true};
  std::vector<std::jthread> writers;
  for (const auto& [name, path] :
       {std::pair("ca", &access.ca), std::pair("cert", &access.cert), std::pair("key", &access.key),
        std::pair("token", &access.token_file)}) {
    *path = folder / name;
    ASSERT_EQ(mkfifo(path->c_str(), 0600), 0);
    writers.emplace_back(
        [path = *path, text = testing::FileText(folder / absl::StrCat("whole-", name))] {
          std::ofstream(path) << text;
        });
  }
  const absl::Status read = ReadPipes(access);
  ASSERT_TRUE(read.ok()) << read;
  for (auto& writer : writers) writer.join();
  // A second read of a pipe would find no bytes.
  for (const std::string& path : {access.ca, access.cert, access.key, access.token_file}) {
    std::filesystem::remove(path);
    const std::ofstream nothing(path);
  }
  for (int call = 0; call < 2; ++call) {
    const absl::Status status = CheckAccess("ring:8001", access);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(CredentialsOf(access).ok());
    EXPECT_EQ(TokenOf(access).value_or(""), "secret");
  }
}

}  // namespace
}  // namespace hilbert_ring::client
