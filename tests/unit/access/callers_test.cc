#include "server/access/callers.h"

#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"
#include "server/access/auth_tokens.h"
#include "tests/support/test_folder.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

// A token of each role: lab submits, eye observes, root is an administrator.
std::unique_ptr<AuthTokens> ThreeTokens() {
  const testing::TestFolder folder;
  std::ofstream(folder / "tokens")
      << R"({"name": "lab", "role": "submit", "token": "0123456789abcdef-lab"}
{"name": "eye", "role": "observe", "token": "0123456789abcdef-eye"}
{"name": "root", "role": "admin", "token": "0123456789abcdef-root"}
)";
  auto tokens = AuthTokens::Read(folder / "tokens");
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  return *std::move(tokens);
}

TEST(Callers, AreKnownByTheirToken) {
  Callers callers(ThreeTokens());
  const auto name = [&](const std::string& authorization) {
    const auto caller = callers.OfHttp(authorization);
    return caller.ok() ? caller->name : wire::ReasonOf(caller.status());
  };
  EXPECT_EQ(name("Bearer 0123456789abcdef-eye"), "eye");
  EXPECT_EQ(name("basic " + absl::Base64Escape("name:0123456789abcdef-root")), "root");
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

}  // namespace
}  // namespace hilbert_ring::server
