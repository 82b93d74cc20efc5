#include "server/process/tokens.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "grpcpp/test/client_context_test_peer.h"
#include "grpcpp/test/server_context_test_spouse.h"
#include "gtest/gtest.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Call {
 public:
  Call() : spouse_(&server_) {}
  grpc::ClientContext& client() { return client_; }
  const grpc::ServerContext& server() {
    for (const auto& [key, value] :
         grpc::testing::ClientContextTestPeer(&client_).GetSendInitialMetadata()) {
      spouse_.AddClientMetadata(key, value);
    }
    return server_;
  }

 private:
  grpc::ClientContext client_;
  grpc::ServerContext server_;
  grpc::testing::ServerContextTestSpouse spouse_;
};

absl::StatusOr<std::string> TokenOfFile(const std::string& content) {
  const std::string path = ::testing::TempDir() + "tokens_test_" + std::to_string(getpid());
  std::ofstream(path, std::ios::binary) << content;
  absl::StatusOr<std::string> token = ReadTokenFile(path);
  std::filesystem::remove(path);
  return token;
}

constexpr char kToken[] = "correct-horse-battery-staple";

absl::Status Join(const std::string& brought, const std::string& wanted) {
  Call call;
  AddJoinToken(call.client(), brought);
  return CheckJoinToken(call.server(), wanted);
}

TEST(JoinToken, IsTheCoordinatorsOrEmpty) {
  EXPECT_TRUE(Join(kToken, kToken).ok());
  EXPECT_TRUE(Join("", "").ok());
  EXPECT_TRUE(Join(kToken, "").ok());
  for (const std::string& wrong : {std::string(kToken) + "x", std::string(kToken, 27),
                                   std::string("Correct-horse-battery-staple")}) {
    const absl::Status refused = Join(wrong, kToken);
    EXPECT_TRUE(absl::IsUnauthenticated(refused)) << refused;
    EXPECT_EQ(wire::ReasonOf(refused), "JOIN_TOKEN");
    EXPECT_THAT(refused.ToString(), Not(HasSubstr(kToken)));
    EXPECT_THAT(refused.ToString(), Not(HasSubstr(wrong)));
  }
  EXPECT_THAT(std::string(Join("", kToken).message()), HasSubstr("--join-token-file"));
}

TEST(JoinToken, IsReadWithoutWhiteSpaceAroundIt) {
  EXPECT_EQ(*TokenOfFile(std::string(" ") + kToken + "\r\n"), kToken);
}

TEST(JoinToken, FilesWithoutATokenAreRefused) {
  EXPECT_TRUE(absl::IsNotFound(ReadTokenFile("/no/such/file").status()));
  for (const std::string& wrong :
       {std::string(), std::string("\n"), std::string("too-short"),
        std::string("two words of text"), std::string("nul\0in-the-middle-of-it", 23),
        std::string(5000, 'x')}) {
    const absl::Status refused = TokenOfFile(wrong).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    if (wrong.size() > 2) {
      EXPECT_THAT(refused.ToString(), Not(HasSubstr(wrong)));
    }
  }
}

TEST(CallToken, IsMadeWithTheSecretForOneMethod) {
  const std::string secret = *DrawSecret(), other = *DrawSecret();
  EXPECT_NE(secret, other);
  Call call;
  AddCallToken(call.client(), secret, "Run");
  const grpc::ServerContext& context = call.server();
  EXPECT_TRUE(CheckCallToken(context, secret, "Run").ok());
  for (const absl::Status& refused :
       {CheckCallToken(context, secret, "CloseRing"), CheckCallToken(context, other, "Run"),
        CheckCallToken(context, "", "Run")}) {
    EXPECT_TRUE(absl::IsUnauthenticated(refused)) << refused;
    EXPECT_EQ(wire::ReasonOf(refused), "JOIN_TOKEN");
    EXPECT_THAT(refused.ToString(), Not(HasSubstr(secret)));
  }
}

TEST(CallToken, AnEmptySecretProvesNothing) {
  Call none;
  EXPECT_FALSE(CheckCallToken(none.server(), *DrawSecret(), "Run").ok());
  EXPECT_FALSE(CheckCallToken(none.server(), "", "Run").ok());
  Call without_secret;
  AddCallToken(without_secret.client(), "", "Run");
  EXPECT_FALSE(CheckCallToken(without_secret.server(), "", "Run").ok());
  // Any caller could compute a proof from an empty secret.
  const std::string draw(16, 'd'), message = "Run:" + draw;
  std::string proof(32, '\0');
  ASSERT_NE(HMAC(EVP_sha256(), "", 0, reinterpret_cast<const unsigned char*>(message.data()),
                 message.size(), reinterpret_cast<unsigned char*>(proof.data()), nullptr),
            nullptr);
  Call forged;
  forged.client().AddMetadata("hilbert-ring-call-token-bin", draw + proof);
  EXPECT_FALSE(CheckCallToken(forged.server(), "", "Run").ok());
}

}  // namespace
}  // namespace hilbert_ring::server
