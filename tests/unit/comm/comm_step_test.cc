#include "engine/comm/comm_step.h"

#include <gtest/gtest.h>

namespace hilbert_ring {
namespace {

TEST(TransferKeysTest, CountsByPeer) {
  TransferKeys keys(5, 3);
  EXPECT_EQ(keys.Next(1, 10), (TransferKey{5, 0, 10}));
  EXPECT_EQ(keys.Next(2, 10), (TransferKey{5, 0, 10}));
  EXPECT_EQ(keys.Next(1, 0), (TransferKey{5, 1, 0}));
  EXPECT_EQ(keys.Next(1, 10), (TransferKey{5, 2, 10}));
}

}  // namespace
}  // namespace hilbert_ring
