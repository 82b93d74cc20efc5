#include "server/process/certificate_watch.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/captured_log.h"
#include "tests/support/certificates.h"

namespace hilbert_ring::server {
namespace {

using testing::CertificateAuthority;
using ::testing::HasSubstr;
using SystemClock = CertificateWatch::SystemClock;

constexpr long kDay = 24 * 3600;

class CertificateWatchTest : public ::testing::Test {
 protected:
  std::string Issue(const std::string& name, long days) const {
    std::string cert = folder_ + name + ".crt";
    authority_.Issue({.valid_until = days * kDay}, cert, folder_ + name + ".key");
    return cert;
  }
  static std::string TextOf(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string Both(const std::string& name, const std::string& a, const std::string& b) const {
    std::ofstream(folder_ + name) << TextOf(a) << TextOf(b);
    return folder_ + name;
  }
  static void ExpectDays(double end, long days) {
    const double now = std::chrono::duration<double>(SystemClock::now().time_since_epoch()).count();
    EXPECT_NEAR(end - now, static_cast<double>(days * kDay), 600);
  }

  const std::string folder_ =
      ::testing::TempDir() + "/certificate_watch_" + std::to_string(getpid()) + "_";
  const CertificateAuthority authority_;
};

TEST_F(CertificateWatchTest, ReportsTheEndOfEachCertificate) {
  const std::string later = Issue("later", 300), sooner = Issue("sooner", 30);
  CertificateWatch watch(
      {{"chain", "--tls-cert", Both("chain", later, sooner), CertificateWatch::Holds::kChain},
       {"ca", "--tls-ca", Both("ca", sooner, later), CertificateWatch::Holds::kAuthorities},
       {"none", "--tls-client-ca", "", CertificateWatch::Holds::kAuthorities},
       {"gone", "--tls-client-ca", folder_ + "no_such_file"}});
  watch.Show("http", TextOf(later));
  const auto ends = watch.Ends();
  ASSERT_EQ(ends.size(), 3U);
  ExpectDays(ends.at("chain"), 30);
  ExpectDays(ends.at("ca"), 300);
  ExpectDays(ends.at("http"), 300);
  Issue("chain", 60);
  std::ofstream(folder_ + "chain") << TextOf(folder_ + "chain.crt");
  ExpectDays(watch.Ends().at("chain"), 60);
  ExpectDays(watch.Ends().at("http"), 300);
}

TEST_F(CertificateWatchTest, WarnsDailyFromTwoWeeksBeforeTheEnd) {
  const testing::CapturedLog log;
  SystemClock::time_point now = SystemClock::now();
  const std::string cert = Issue("cert", 20);
  CertificateWatch watch({{"service", "--tls-cert", cert, CertificateWatch::Holds::kChain}},
                         [&] { return now; });
  const auto warnings_after = [&](std::chrono::hours time) {
    const int before = log.Count("--tls-cert");
    now += time;
    watch.Look();
    return log.Count("--tls-cert") - before;
  };
  const std::chrono::hours day(24);
  EXPECT_EQ(log.Count("--tls-cert"), 0) << log.text();
  EXPECT_EQ(warnings_after(5 * day), 0);
  EXPECT_EQ(warnings_after(2 * day), 1);
  EXPECT_THAT(log.text(), HasSubstr("expires in 31"));  // 13 days are 312 hours
  EXPECT_EQ(warnings_after(std::chrono::hours(1)), 0) << "daily";
  EXPECT_EQ(warnings_after(std::chrono::hours(23)), 1);
  EXPECT_EQ(warnings_after(13 * day), 1);
  EXPECT_THAT(log.text(), HasSubstr("has expired"));
  EXPECT_EQ(warnings_after(day), 1);
  Issue("cert", 400);
  EXPECT_EQ(warnings_after(day), 0) << "the certificate is renewed";
  std::ofstream(cert) << "";
  EXPECT_EQ(warnings_after(day), 1);
  EXPECT_THAT(log.text(), HasSubstr("has no readable certificate"));
}

}  // namespace
}  // namespace hilbert_ring::server
