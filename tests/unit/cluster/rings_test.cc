#include "server/cluster/rings.h"

#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const Member> Worker(const std::string& address, const std::string& transport) {
  auto member = std::make_shared<Member>();
  member->address = address;
  member->transport = transport;
  return member;
}

TEST(CheckOneTransport, TakesWorkersOfOneKind) {
  EXPECT_TRUE(CheckOneTransport({}).ok());
  EXPECT_TRUE(CheckOneTransport({Worker("a:1", "nccl"), Worker("b:1", "nccl")}).ok());
}

TEST(CheckOneTransport, NamesTwoThatDiffer) {
  const absl::Status status =
      CheckOneTransport({Worker("a:1", "gloo"), Worker("b:1", "gloo"), Worker("c:1", "nccl")});
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(wire::ReasonOf(status), "MIXED_TRANSPORTS");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("worker a:1 makes rings over gloo, worker c:1 over nccl"));
}

TEST(Rings, RefuseAMixBeforeAnyoneIsCalled) {
  Rings rings;
  JobStop stop;
  // The members have no stubs: a call would crash.
  const auto lease = rings.Take({Worker("a:1", "gloo"), Worker("c:1", "nccl")}, "job", stop);
  EXPECT_EQ(wire::ReasonOf(lease.status()), "MIXED_TRANSPORTS");
  EXPECT_TRUE(rings.Describe().empty());
}

}  // namespace
}  // namespace hilbert_ring::server
