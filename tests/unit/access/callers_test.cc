#include "server/access/callers.h"

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/access/three_tokens.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;

TEST(Callers, AreKnownByTheirToken) {
  Callers callers(ThreeTokens());
  const auto name = [&](const std::string& authorization) {
    const auto caller = callers.OfHttp(authorization);
    return caller.ok() ? caller->name : wire::ReasonOf(caller.status());
  };
  EXPECT_EQ(name("Bearer 0123456789abcdef-eye"), "eye");
  EXPECT_EQ(name("basic " + absl::Base64Escape("whoever:0123456789abcdef-root")), "root");
  EXPECT_EQ(name("Basic " + absl::Base64Escape("0123456789abcdef-lab")), "lab");
  for (const std::string& wrong :
       {std::string(), std::string("Basic"), std::string("Basic 0123456789abcdef-eye"),
        "Basic " + absl::Base64Escape("root:0123456789abcdef"),
        "Basic " + absl::Base64Escape("0123456789abcdef-root:"),
        "Bearer " + absl::Base64Escape("root:0123456789abcdef-root")}) {
    EXPECT_EQ(name(wrong), "AUTH_TOKEN") << wrong;
  }
  EXPECT_TRUE(callers.CheckCaller("Bearer 0123456789abcdef-lab").ok());
  EXPECT_TRUE(absl::IsUnauthenticated(callers.CheckCaller("Bearer 0123456789abcdef")));
  EXPECT_EQ(Callers(nullptr).OfHttp("")->role, Role::kObserve);
}

TEST(Callers, ARoleIsOneOfThoseThatMay) {
  const Caller eye{.name = "eye", .role = Role::kObserve};
  EXPECT_TRUE(CheckRole(eye, {Role::kSubmit, Role::kObserve}, "see jobs").ok());
  const absl::Status refused = CheckRole(eye, {Role::kSubmit, Role::kAdmin}, "run jobs");
  EXPECT_TRUE(absl::IsPermissionDenied(refused));
  EXPECT_TRUE(wire::HasReason(refused, wire::reason::kRole));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("eye has the role observe, which may not run jobs"));
  const absl::Status unnamed = CheckRole({.role = Role::kSubmit}, {Role::kAdmin}, "end others'");
  EXPECT_EQ(std::string(unnamed.message()),
            "a caller without a name has the role submit, which may not end others'");
}

// What no handler of ours checks.
TEST(TokenCheck, LetsOurMethodsAndHealthPass) {
  Callers callers(ThreeTokens());
  std::vector<std::string> refused;
  const auto check =
      TokenCheck(callers, {"/hilbert_ring.v1.AttentionService/"},
                 [&](const absl::Status& why) { refused.push_back(wire::ReasonOf(why)); });
  const auto code = [&](const char* path, const char* authorization) {
    grpc::AuthMetadataProcessor::InputMetadata metadata = {{":path", path}};
    if (authorization != nullptr) metadata.insert({"authorization", authorization});
    return check->Process(metadata, nullptr, nullptr, nullptr).error_code();
  };
  constexpr char kReflection[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
  EXPECT_EQ(code(kReflection, nullptr), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(code(kReflection, "Bearer 0123456789abcdef"), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(code(kReflection, "Bearer 0123456789abcdef-lab"), grpc::StatusCode::OK);
  EXPECT_EQ(code("/hilbert_ring.v1.AttentionService/Plan", nullptr), grpc::StatusCode::OK);
  EXPECT_EQ(code("/grpc.health.v1.Health/Check", nullptr), grpc::StatusCode::OK);
  EXPECT_EQ(code("/hilbert_ring.v1.AttentionServices/Plan", nullptr),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(code("", nullptr), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(refused, std::vector<std::string>(4, "AUTH_TOKEN")) << "each is told";
}

}  // namespace
}  // namespace hilbert_ring::server
