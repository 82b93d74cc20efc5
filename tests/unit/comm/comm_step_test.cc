#include "engine/comm/comm_step.h"

#include <gtest/gtest.h>

namespace hilbert_ring {
namespace {

TEST(CheckStepTest, NamesFieldValueAndLimit) {
  char byte = 0;
  EXPECT_EQ(CheckStep({.number = 4}, 0, 2, 4).message(), "number is 4, must be > 4");
  EXPECT_EQ(CheckStep({.sends = {{.peer = 1}, {.peer = 2}}}, 0, 2, -1).message(),
            "sends[1].peer is 2, must be in [0, 2)");
  EXPECT_EQ(CheckStep({.receives = {{.peer = 1}}}, 1, 2, -1).message(),
            "receives[0].peer is 1, the rank itself");
  EXPECT_EQ(CheckStep({.sends = {{.peer = 1, .data = &byte, .bytes = -3}}}, 0, 2, -1).message(),
            "sends[0].bytes is -3, must be >= 0");
  EXPECT_EQ(CheckStep({.receives = {{.peer = 1, .bytes = 3}}}, 0, 2, -1).message(),
            "receives[0].data is null, bytes is 3");
}

TEST(TransferKeysTest, CountsByPeer) {
  TransferKeys keys(5, 3);
  EXPECT_EQ(keys.Next(1, 10), (TransferKey{5, 0, 10}));
  EXPECT_EQ(keys.Next(2, 10), (TransferKey{5, 0, 10}));
  EXPECT_EQ(keys.Next(1, 0), (TransferKey{5, 1, 0}));
  EXPECT_EQ(keys.Next(1, 10), (TransferKey{5, 2, 10}));
}

}  // namespace
}  // namespace hilbert_ring
