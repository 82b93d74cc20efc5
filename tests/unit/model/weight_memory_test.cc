#include "engine/model/weight_memory.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "engine/model/encoder_model.h"
#include "gtest/gtest.h"
#include "tests/golden/encoder_case.h"
#include "tests/support/test_folder.h"

namespace hilbert_ring {
namespace {

class WeightMemoryTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<WeightMemory>> Open(
      const std::string& key = "a", int64_t bytes = kBytes,
      absl::Duration wait = absl::ZeroDuration()) const {
    return WeightMemory::Shared(folder_.path(), key, bytes, wait);
  }
  static void Fill(WeightMemory& memory, char with) {
    std::memset(memory.data(), with, static_cast<size_t>(memory.bytes()));
    ASSERT_TRUE(memory.Seal().ok());
  }
  int64_t Files() const {
    const std::filesystem::directory_iterator files(folder_.path());
    return std::distance(begin(files), end(files));
  }
  std::string OnlyFile() const {
    return std::filesystem::directory_iterator(folder_.path())->path().string();
  }

  static constexpr int64_t kBytes = 10'000;
  testing::TestFolder folder_;
};

TEST_F(WeightMemoryTest, TheFirstFillsAndOthersRead) {
  auto first = Open();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE((*first)->filled());
  EXPECT_TRUE((*first)->shared());
  EXPECT_TRUE(absl::IsUnavailable(Open().status())) << Open().status();  // it is being filled
  Fill(**first, 'x');
  const auto second = Open();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE((*second)->filled());
  EXPECT_EQ(static_cast<char>((*second)->data()[kBytes - 1]), 'x');
  EXPECT_NE((*second)->data(), (*first)->data());
  first->reset();
  const auto third = Open();
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_TRUE((*third)->filled());
  const auto other = Open("b");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_FALSE((*other)->filled());
}

// A stopped process keeps its lock.
TEST_F(WeightMemoryTest, OneThatDoesNotGoOnIsNotWaitedFor) {
  auto first = Open();
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = std::async(std::launch::async, [this] {
    return WeightMemory::Shared(folder_.path(), "a", kBytes, absl::Seconds(60),
                                absl::Milliseconds(300));
  });
  ASSERT_EQ(second.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_TRUE(absl::IsUnavailable(second.get().status()));
}

TEST_F(WeightMemoryTest, OneThatGoesOnIsWaitedFor) {
  auto first = Open();
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = std::async(std::launch::async, [this] {
    return WeightMemory::Shared(folder_.path(), "a", kBytes, absl::Seconds(60), absl::Seconds(1));
  });
  for (int i = 0; i < 15; ++i) {
    (*first)->NoteProgress();
    EXPECT_EQ(second.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  }
  Fill(**first, 'x');
  const auto got = second.get();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE((*got)->filled());
}

TEST_F(WeightMemoryTest, TheLastOneRemovesIt) {
  auto first = Open();
  ASSERT_TRUE(first.ok()) << first.status();
  Fill(**first, 'x');
  auto second = Open();
  ASSERT_TRUE(second.ok()) << second.status();
  first->reset();
  EXPECT_EQ(Files(), 1);
  second->reset();
  EXPECT_EQ(Files(), 0);
}

// A process that dies while it fills leaves no valid weights.
TEST_F(WeightMemoryTest, WhatWasNotSealedIsFilledAnew) {
  for (const bool sealed : {false, true}) {
    SCOPED_TRACE(sealed);
    const pid_t child = fork();
    if (child == 0) {
      auto memory = Open();
      if (memory.ok()) std::memset((*memory)->data(), 'x', kBytes);
      if (memory.ok() && sealed && !(*memory)->Seal().ok()) _exit(1);
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    ASSERT_EQ(Files(), 1);
    auto next = Open();
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ((*next)->filled(), sealed);
    if (sealed) {
      next->reset();
      break;
    }
    WeightMemory::RemoveUnused(folder_.path());
    EXPECT_EQ(Files(), 1);  // `next` has it open
    next->reset();
    EXPECT_EQ(Files(), 0);
  }
}

TEST_F(WeightMemoryTest, WhatWasChangedIsNotTaken) {
  auto first = Open();
  ASSERT_TRUE(first.ok()) << first.status();
  Fill(**first, 'x');
  std::fstream file(OnlyFile(), std::ios::in | std::ios::out);
  file.seekp(8000);
  file << 'y';
  file.close();
  EXPECT_FALSE(Open().ok());
}

TEST_F(WeightMemoryTest, OthersFilesAreNotTaken) {
  {
    auto first = Open();
    ASSERT_TRUE(first.ok()) << first.status();
    Fill(**first, 'x');
    std::filesystem::permissions(OnlyFile(), std::filesystem::perms::all);
    EXPECT_TRUE(absl::IsFailedPrecondition(Open().status())) << Open().status();
  }
  std::ofstream(folder_ / "target") << "x";
  std::filesystem::create_symlink(
      folder_ / "target", folder_ / ("hilbert-ring-weights-" + std::to_string(geteuid()) + "-a"));
  EXPECT_FALSE(Open().ok());
}

TEST_F(WeightMemoryTest, AModelsWeightsArePackedOnce) {
  const auto golden = testing::LoadEncoderCase("slide_small");
  ASSERT_TRUE(golden.ok()) << golden.status();
  FileDigests digests;
  const auto folder = EncoderFolder::Open(golden->folder, digests);
  ASSERT_TRUE(folder.ok()) << folder.status();
  std::vector<std::string> keys;
  std::vector<bool> filled;  // by an earlier load
  const auto load = [&](DataType compute) {
    return *EncoderModel::Load(
        *folder, {.compute = compute, .memory = [&](const std::string& key, int64_t bytes) {
                    auto memory = Open(key, bytes);
                    keys.push_back(key);
                    filled.push_back(memory.ok() && (*memory)->filled());
                    return memory;
                  }});
  };
  const auto first = load(DataType::kFloat32);
  const auto second = load(DataType::kFloat32);
  const auto rounded = load(DataType::kBFloat16);
  EXPECT_TRUE(first->shared() && second->shared());
  EXPECT_EQ(filled, (std::vector<bool>{false, true, false}));
  EXPECT_EQ(Files(), 2);
  EXPECT_EQ(keys[0], keys[1]);
  EXPECT_NE(keys[0], keys[2]);
  EXPECT_EQ(first->bytes(), *PackedBytes(folder->config(), {}));
}

}  // namespace
}  // namespace hilbert_ring
