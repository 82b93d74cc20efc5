#include <chrono>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/cluster/membership.h"
#include "server/coordinator/attention_service.h"
#include "server/process/version.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ClusterView, HidesErrorsOfOtherCallersJobs) {
  Membership membership(std::chrono::minutes(1),
                        {.joined = [](const Member&) {},
                         .left = [](const Member&) {},
                         .gone = [](const std::string&) {},
                         .closed = [](const Member&) {},
                         .failed = [](const Member&) {},
                         .beat = [](const Member&, const v1::Heartbeat&) {}});
  v1::Heartbeat beat;
  beat.set_address("127.0.0.1:1");
  beat.set_version(std::string(kVersion));
  beat.set_memory_limit_bytes(1 << 30);
  const auto member = membership.Register(beat);
  ASSERT_TRUE(member.ok()) << member.status();
  membership.Reached(**member);
  membership.Failed(**member, "job theirs: worker 127.0.0.1:1 was lost: a secret");
  v1::GetClusterResponse cluster;
  *cluster.add_workers() = membership.Describe()[0];
  ASSERT_THAT(cluster.workers(0).reason(), HasSubstr("job theirs"));
  HideJobsOfOthers({}, cluster);
  EXPECT_THAT(cluster.ShortDebugString(), Not(HasSubstr("theirs")));
  EXPECT_THAT(cluster.ShortDebugString(), Not(HasSubstr("a secret")));
  EXPECT_EQ(cluster.workers(0).reason(), "jobs failed there");
}

}  // namespace
}  // namespace hilbert_ring::server
