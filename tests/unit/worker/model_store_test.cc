#include "server/worker/model_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "gtest/gtest.h"
#include "tests/golden/encoder_case.h"
#include "tests/support/test_folder.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

class ModelStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto golden = testing::LoadEncoderCase("slide_small");
    ASSERT_TRUE(golden.ok()) << golden.status();
    for (const char* name : {"a", "b"}) {
      std::filesystem::copy(golden->folder, folder_ / name);
      std::ofstream(folder_ / (std::string(name) + "/config.json"), std::ios::app)
          << std::string(name == std::string("a") ? 1 : 2, ' ');  // versions of their own
    }
    ModelStore all(folder_.path(), int64_t{1} << 30);
    one_ = (*all.Load(*all.catalog().Open("a"), DataType::kFloat32))->bytes();
    EXPECT_EQ(all.bytes(), one_);
  }

  static absl::StatusOr<std::shared_ptr<const EncoderModel>> Load(ModelStore& store,
                                                                  const std::string& name) {
    auto folder = store.catalog().Open(name);
    if (!folder.ok()) return folder.status();
    return store.Load(*folder, DataType::kFloat32);
  }

  testing::TestFolder folder_;
  int64_t one_ = 0;  // bytes of a model
};

TEST_F(ModelStoreTest, AModelIsLoadedOnce) {
  ModelStore store(folder_.path(), 3 * one_);
  const auto first = Load(store, "a");
  const auto second = Load(store, "a");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->get(), second->get());
  EXPECT_EQ(store.count(), 1);
  ASSERT_TRUE(Load(store, "b").ok());
  EXPECT_EQ(store.count(), 2);
}

TEST_F(ModelStoreTest, ACancelledJobLoadsNothing) {
  ModelStore store(folder_.path(), 3 * one_);
  const auto folder = store.catalog().Open("a");
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto model = store.Load(*folder, DataType::kFloat32, [] { return true; });
  EXPECT_TRUE(absl::IsCancelled(model.status())) << model.status();
  EXPECT_EQ(store.count(), 0);
  EXPECT_TRUE(Load(store, "a").ok()) << "the next one has its turn";
}

// As another worker does that fills the weights which the two share.
class Filler {
 public:
  explicit Filler(const std::string& path)
      : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    EXPECT_EQ(flock(file_, LOCK_EX | LOCK_NB), 0);
  }
  ~Filler() { close(file_); }
  Filler(const Filler&) = delete;
  Filler& operator=(const Filler&) = delete;

 private:
  const int file_;
};

TEST_F(ModelStoreTest, AModelThatIsLoadedWaitsForNoOther) {
  const testing::TestFolder shared;
  std::string weights;
  {
    ModelStore store(folder_.path(), 3 * one_, shared.path());
    ASSERT_TRUE(Load(store, "b").ok());
    weights = std::filesystem::directory_iterator(shared.path())->path();
  }
  ModelStore store(folder_.path(), 3 * one_, shared.path());
  ASSERT_TRUE(Load(store, "a").ok());
  auto filler = std::make_optional<Filler>(weights);
  const auto folder = store.catalog().Open("b");
  ASSERT_TRUE(folder.ok()) << folder.status();
  std::promise<void> asked;
  auto slow = std::async(std::launch::async, [&] {
    return store.Load(*folder, DataType::kFloat32, [&, told = false]() mutable {
      if (!std::exchange(told, true)) asked.set_value();
      return false;
    });
  });
  asked.get_future().wait();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it has its turn
  auto quick = std::async(std::launch::async, [&] { return Load(store, "a"); });
  EXPECT_EQ(quick.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_EQ(slow.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  filler.reset();
  EXPECT_TRUE(quick.get().ok());
  EXPECT_TRUE(slow.get().ok());
}

TEST_F(ModelStoreTest, TheOneThatWasNotUsedForLongestMakesRoom) {
  ModelStore store(folder_.path(), one_ * 3 / 2);
  ASSERT_TRUE(Load(store, "a").ok());
  ASSERT_TRUE(Load(store, "b").ok());
  EXPECT_EQ(store.count(), 1);
  EXPECT_LE(store.bytes(), store.limit());
}

// Not the one that was loaded first.
TEST_F(ModelStoreTest, AModelThatWasUsedAgainIsNotTheOneThatMakesRoom) {
  std::filesystem::copy(folder_ / "a", folder_ / "c");
  std::ofstream(folder_ / "c/config.json", std::ios::app) << "   ";
  ModelStore store(folder_.path(), one_ * 5 / 2);
  const std::weak_ptr<const EncoderModel> used = *Load(store, "a"), unused = *Load(store, "b");
  ASSERT_TRUE(Load(store, "a").ok());
  ASSERT_TRUE(Load(store, "c").ok());
  EXPECT_TRUE(unused.expired());
  EXPECT_EQ(*Load(store, "a"), used.lock());
  EXPECT_EQ(store.count(), 2);
}

TEST_F(ModelStoreTest, AModelThatAJobHasStays) {
  ModelStore store(folder_.path(), one_ * 3 / 2);
  {
    const auto held = Load(store, "a");
    ASSERT_TRUE(held.ok());
    const auto other = Load(store, "b");
    EXPECT_EQ(wire::ReasonOf(other.status()), wire::reason::kModelMemory.name) << other.status();
    EXPECT_EQ(store.count(), 1);
  }
  EXPECT_TRUE(Load(store, "b").ok());
}

TEST_F(ModelStoreTest, AModelLargerThanTheLimitIsRefused) {
  ModelStore store(folder_.path(), one_ - 1);
  const auto model = Load(store, "a");
  EXPECT_EQ(wire::ReasonOf(model.status()), wire::reason::kModelMemory.name) << model.status();
}

TEST_F(ModelStoreTest, NamesDoNotLeaveTheFolder) {
  ModelStore store(folder_.path(), one_);
  for (const char* name : {"", ".", "..", "../a", "a/b", ".hidden"}) {
    EXPECT_EQ(wire::ReasonOf(Load(store, name).status()), wire::reason::kInvalidSpec.name) << name;
  }
  EXPECT_EQ(wire::ReasonOf(Load(store, "none").status()), wire::reason::kModelNotFound.name);
}

}  // namespace
}  // namespace hilbert_ring::server
