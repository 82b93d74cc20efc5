#include "server/access/http_access.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/access/three_tokens.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Asked {
  int status;
  std::vector<std::string> refused;  // reasons
};

Asked AskForFigures(Callers& callers, bool need_token, const std::string& authorization) {
  Asked asked{};
  const auto handler = ForPrometheus(
      callers, need_token,
      [&](const absl::Status& why) { asked.refused.push_back(wire::ReasonOf(why)); },
      [] { return HttpReply{.body = "figures"}; });
  const HttpReply reply = handler(authorization);
  EXPECT_EQ(reply.status == 200, reply.body == "figures") << reply.body;
  asked.status = reply.status;
  return asked;
}

TEST(HttpAccess, FiguresAreForThoseWhoObserve) {
  Callers callers(ThreeTokens());
  for (const char* token : {"eye", "root"}) {
    const Asked asked =
        AskForFigures(callers, true, std::string("Bearer 0123456789abcdef-") + token);
    EXPECT_EQ(asked.status, 200) << token;
    EXPECT_THAT(asked.refused, IsEmpty());
  }
  const Asked submitter = AskForFigures(callers, true, "Bearer 0123456789abcdef-lab");
  EXPECT_EQ(submitter.status, 403);
  EXPECT_THAT(submitter.refused, ElementsAre("ROLE"));
  const Asked stranger = AskForFigures(callers, true, "");
  EXPECT_EQ(stranger.status, 401);
  EXPECT_THAT(stranger.refused, ElementsAre("AUTH_TOKEN"));
}

TEST(HttpAccess, FiguresAreForAllWhereNoTokenIsNeededOrThereIsNone) {
  Callers with(ThreeTokens()), without(nullptr);
  EXPECT_EQ(AskForFigures(with, false, "").status, 200);
  EXPECT_EQ(AskForFigures(without, true, "").status, 200);
}

TEST(HttpAccess, TheReplyKnowsTheCaller) {
  Callers callers(ThreeTokens());
  const auto handler = ForRoles(
      callers, {Role::kSubmit}, "see it", [](const absl::Status&) {},
      [](const Caller& caller) { return HttpReply{.body = caller.name}; });
  EXPECT_EQ(handler("Bearer 0123456789abcdef-lab").body, "lab");
  EXPECT_EQ(handler("Bearer 0123456789abcdef-eye").status, 403);
}

}  // namespace
}  // namespace hilbert_ring::server
