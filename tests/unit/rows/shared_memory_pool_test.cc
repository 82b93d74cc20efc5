#include "server/rows/shared_memory_pool.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;

constexpr int64_t kBytes = 100'000;

std::string Text(const SharedMemory& memory) {
  return {reinterpret_cast<const char*>(memory.data()), static_cast<size_t>(memory.bytes())};
}

class SharedMemoryPoolTest : public ::testing::Test {
 protected:
  const std::byte* TakeAndKeep(int64_t bytes) {
    auto memory = pool_.Take(bytes);
    EXPECT_TRUE(memory.ok()) << memory.status();
    EXPECT_GE((*memory)->bytes(), bytes);
    const std::byte* const data = (*memory)->data();
    (*memory)->data()[0] = std::byte{'x'};
    pool_.Keep(*std::move(memory));
    return data;
  }

  SharedMemoryPool pool_{milliseconds(60'000)};
};

TEST_F(SharedMemoryPoolTest, ReusesKeptMemory) {
  const std::byte* const first = TakeAndKeep(kBytes);
  const auto memory = pool_.Take(kBytes - 1000);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ((*memory)->data(), first);
  EXPECT_TRUE((*memory)->offer().used());
  EXPECT_EQ((*memory)->data()[0], std::byte{'x'});
  EXPECT_EQ((*memory)->bytes(), kBytes);
  EXPECT_TRUE(SharedMemory::Open((*memory)->offer()).ok());
}

TEST_F(SharedMemoryPoolTest, FreshMemoryIfNothingSuits) {
  TakeAndKeep(kBytes);
  for (const int64_t bytes : {kBytes + 1, kBytes / 2}) {
    const auto memory = pool_.Take(bytes);
    ASSERT_TRUE(memory.ok());
    EXPECT_FALSE((*memory)->offer().used());
    EXPECT_THAT(Text(**memory), Each('\0'));
  }
}

TEST_F(SharedMemoryPoolTest, NotWhileAReaderHasIt) {
  auto memory = pool_.Take(kBytes);
  ASSERT_TRUE(memory.ok());
  const std::shared_ptr<SharedMemory> reader = *memory;
  pool_.Keep(*std::move(memory));
  const auto next = pool_.Take(kBytes);
  ASSERT_TRUE(next.ok());
  EXPECT_NE((*next)->data(), reader->data());
}

TEST(SharedMemoryPool, FreesInTime) {
  SharedMemoryPool pool(milliseconds(20));
  auto memory = pool.Take(kBytes);
  ASSERT_TRUE(memory.ok());
  const std::weak_ptr<SharedMemory> watch = *memory;
  pool.Keep(*std::move(memory));
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!watch.expired() && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace hilbert_ring::server
