// What a machine says that lacks the GPU that is asked for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/comm/communicator.h"

namespace hilbert_ring {
namespace {

using ::testing::StartsWith;

TEST(NcclEndTest, SaysThatThereIsNoSuchDevice) {
  const auto never = [](const std::string&, Deadline) -> absl::StatusOr<std::vector<std::string>> {
    ADD_FAILURE() << "all_gather is called";
    return absl::InternalError("called");
  };
  for (const int device : {-1, 100'000}) {
    const absl::Status status =
        MakeNcclCommunicator({.rank = 0, .size = 2, .cuda_device = device}, never).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), StartsWith("no CUDA device: "));
  }
}

}  // namespace
}  // namespace hilbert_ring
