#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/process/tls.h"
#include "tests/support/captured_log.h"
#include "tests/support/certificates.h"
#include "tests/support/test_folder.h"

namespace hilbert_ring::server {
namespace {

using testing::CertificateAuthority;
using testing::FileText;
using ::testing::HasSubstr;

class Copies : public ::testing::Test {
 protected:
  Copies() {
    authority_.WriteTo(files_.ca);
    authority_.Issue({}, files_.cert, files_.key);
    authority_.Issue({}, folder_ / "new.crt", folder_ / "new.key");
  }

  void SetUp() override {
    auto copies = TlsCopies::Make(files_, "--grpc-port");
    ASSERT_TRUE(copies.ok()) << copies.status();
    copies_ = *std::move(copies);
  }

  static void Put(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::trunc) << text;
  }
  std::string Identity() const { return FileText(copies_->paths().cert); }
  std::string Ca() const { return FileText(copies_->paths().ca); }
  time_t ChangedAt() const {
    struct stat found = {};
    EXPECT_EQ(stat(copies_->paths().key.c_str(), &found), 0);
    return found.st_mtime;
  }

  const testing::TestFolder folder_;
  const TlsFiles files_ = {folder_ / "tls.crt", folder_ / "tls.key", folder_ / "ca.crt"};
  const CertificateAuthority authority_;
  std::unique_ptr<TlsCopies> copies_;
};

TEST_F(Copies, HoldValidFiles) {
  EXPECT_TRUE(CheckTlsFiles(copies_->paths()).ok()) << "the copies are as good as the files";
  EXPECT_EQ(copies_->paths().cert, copies_->paths().key);
  EXPECT_EQ(Ca(), FileText(files_.ca));
  const std::string before = Identity();
  const time_t changed = ChangedAt();
  copies_->Look();
  EXPECT_EQ(Identity(), before);
  EXPECT_EQ(ChangedAt(), changed);

  Put(files_.key, FileText(folder_ / "new.key"));
  copies_->Look();
  EXPECT_EQ(Identity(), before) << "the key of another certificate";
  Put(files_.cert, FileText(folder_ / "new.crt"));
  copies_->Look();
  EXPECT_THAT(Identity(), HasSubstr(FileText(folder_ / "new.crt")));
  EXPECT_TRUE(CheckTlsFiles(copies_->paths()).ok());
  EXPECT_NE(ChangedAt(), changed) << "gRPC would combine a certificate and another key";
}

TEST_F(Copies, RejectInvalidFiles) {
  const std::string before = Identity(), ca = Ca(), cert = FileText(files_.cert);
  const auto wrong = [&](const std::string& path, const std::string& text) {
    const std::string right = FileText(path);
    Put(path, text);
    copies_->Look();
    EXPECT_EQ(Identity(), before) << path << ": " << text;
    EXPECT_EQ(Ca(), ca) << path << ": " << text;
    Put(path, right);
  };
  for (const std::string& path : {files_.cert, files_.key, files_.ca}) {
    const std::string right = FileText(path);
    for (const std::string& text : {std::string(), right.substr(0, right.size() / 2),
                                    std::string("words\n"), std::string(kMostPemBytes + 1, '\n')}) {
      wrong(path, text);
    }
    std::filesystem::remove(path);
    copies_->Look();
    std::filesystem::create_directory(path);
    copies_->Look();
    EXPECT_EQ(Identity(), before) << path;
    std::filesystem::remove(path);
    Put(path, right);
  }
  wrong(files_.cert, cert + ca.substr(0, ca.size() / 2));  // a partly written chain
  wrong(files_.ca, ca + cert.substr(0, cert.size() / 2));
  Put(files_.cert, cert + ca);
  copies_->Look();
  EXPECT_THAT(Identity(), HasSubstr(cert + ca));
}

TEST_F(Copies, LogAnErrorOnce) {
  const testing::CapturedLog log;
  const std::string right = FileText(files_.cert);
  for (int times = 1; times <= 2; ++times) {
    Put(files_.cert, "");
    for (int looks = 0; looks < 3; ++looks) copies_->Look();
    EXPECT_EQ(log.Count("gRPC (--grpc-port) keeps its certificate: --tls-cert: " + files_.cert +
                        " holds no certificate in PEM"),
              times);
    Put(files_.cert, right);
    copies_->Look();
  }
}

}  // namespace
}  // namespace hilbert_ring::server
