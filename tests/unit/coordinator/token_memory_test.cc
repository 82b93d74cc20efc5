#include <string>

#include "gtest/gtest.h"
#include "server/coordinator/coordinator.h"
#include "server/process/tokens.h"

namespace hilbert_ring::server {
namespace {

TEST(TokenMemory, IsReadAsAFileIsAndGoesWithItsOwner) {
  const std::string token(40, 't');
  std::string path;
  {
    const auto memory = TokenInMemory(token);
    ASSERT_TRUE(memory.ok()) << memory.status();
    path = PathOfMemory(*memory);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(*ReadTokenFile(path), token);
  }
  EXPECT_FALSE(ReadTokenFile(path).ok());
}

}  // namespace
}  // namespace hilbert_ring::server
