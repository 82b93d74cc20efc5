#include "server/access/callers.h"

#include <string>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/access/three_tokens.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

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

}  // namespace
}  // namespace hilbert_ring::server
