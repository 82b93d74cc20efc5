#include "server/worker/row_gate.h"

#include <chrono>
#include <future>

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;

TEST(RowGate, OpensForRowsThatAreThere) {
  RowGate gate;
  EXPECT_TRUE(gate.Await(0).ok());
  gate.Open(10);
  gate.Open(5);  // does not take rows back
  EXPECT_TRUE(gate.Await(10).ok());
  auto waiting = std::async(std::launch::async, [&gate] { return gate.Await(11); });
  EXPECT_EQ(waiting.wait_for(milliseconds(20)), std::future_status::timeout);
  gate.Open(11);
  EXPECT_TRUE(waiting.get().ok());
}

TEST(RowGate, TheFirstReasonCounts) {
  RowGate gate;
  gate.Open(3);
  auto waiting = std::async(std::launch::async, [&gate] { return gate.Await(4); });
  gate.Close(absl::DataLossError("first"));
  gate.Close(absl::CancelledError("second"));
  EXPECT_EQ(waiting.get(), absl::DataLossError("first"));
  EXPECT_TRUE(gate.Await(3).ok()) << "these rows are there all the same";
}

TEST(RowGate, AwaitForSaysWhetherThereIsAnAnswer) {
  RowGate gate;
  gate.Open(3);
  EXPECT_TRUE(gate.AwaitFor(3, std::chrono::hours(1)));
  EXPECT_FALSE(gate.AwaitFor(4, milliseconds(1)));
  gate.Close(absl::CancelledError("no more"));
  EXPECT_TRUE(gate.AwaitFor(4, std::chrono::hours(1)));
}

}  // namespace
}  // namespace hilbert_ring::server
