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
      std::ofstream(folder_ / (std::string(name) + "/config.json"), std::ios::app) << std::string(
          name == std::string("a") ? 1 : 2, ' ');  // one more space for each: versions of their own
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

class LoadThatHangs {
 public:
  LoadThatHangs(const std::string& models, int64_t limit)
      : weights_(PathOfWeights(models, shared_.path())),
        store_(models, limit, shared_.path()),
        filler_(weights_) {
    std::promise<void> asked;
    hanging_ = std::async(std::launch::async, [&, folder = *store_.catalog().Open("b")] {
      return store_.Load(folder, DataType::kFloat32, [&, reported = false]() mutable {
        if (!std::exchange(reported, true)) asked.set_value();
        return false;
      });
    });
    asked.get_future().wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until the load has begun
  }

  ModelStore& store() { return store_; }
  bool hangs() const {
    return hanging_.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
  }
  absl::StatusOr<std::shared_ptr<const EncoderModel>> Release() {
    filler_.reset();
    return hanging_.get();
  }

 private:
  static std::string PathOfWeights(const std::string& models, const std::string& shared) {
    ModelStore other(models, int64_t{1} << 30, shared);
    const auto model = other.Load(*other.catalog().Open("b"), DataType::kFloat32);
    EXPECT_TRUE(model.ok()) << model.status();
    return std::filesystem::directory_iterator(shared)->path();
  }

  const testing::TestFolder shared_;
  const std::string weights_;
  ModelStore store_;
  std::optional<Filler> filler_;
  std::future<absl::StatusOr<std::shared_ptr<const EncoderModel>>> hanging_;
};

TEST_F(ModelStoreTest, AHangingModelDelaysNoOther) {
  LoadThatHangs hanging(folder_.path(), 3 * one_);
  for (const char* when : {"to be loaded", "loaded"}) {
    auto other = std::async(std::launch::async, [&] { return Load(hanging.store(), "a"); });
    ASSERT_EQ(other.wait_for(std::chrono::seconds(10)), std::future_status::ready) << when;
    EXPECT_TRUE(other.get().ok()) << when;
  }
  EXPECT_TRUE(hanging.hangs());
  EXPECT_TRUE(hanging.Release().ok());
  EXPECT_EQ(hanging.store().count(), 2);
}

TEST_F(ModelStoreTest, AModelThatIsBeingLoadedIsNotReadTwice) {
  LoadThatHangs hanging(folder_.path(), 3 * one_);
  auto same = std::async(std::launch::async, [&] { return Load(hanging.store(), "b"); });
  EXPECT_EQ(same.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  const auto first = hanging.Release();
  const auto second = same.get();
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_EQ(first->get(), second->get());
  EXPECT_EQ(hanging.store().count(), 1);
}

// The room is unknown until the running load ends.
TEST_F(ModelStoreTest, ModelsThatAreBeingLoadedStayWithinTheLimitTogether) {
  LoadThatHangs hanging(folder_.path(), one_ * 3 / 2);
  const auto folder = hanging.store().catalog().Open("a");
  ASSERT_TRUE(folder.ok()) << folder.status();
  int asked = 0;
  const auto left = hanging.store().Load(*folder, DataType::kFloat32, [&] { return ++asked > 10; });
  EXPECT_TRUE(absl::IsCancelled(left.status())) << left.status();
  auto other = std::async(std::launch::async, [&] { return Load(hanging.store(), "a"); });
  EXPECT_EQ(other.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  {
    const auto held = hanging.Release();
    EXPECT_TRUE(held.ok()) << held.status();
    EXPECT_EQ(wire::ReasonOf(other.get().status()), wire::reason::kWorkerMemory.name);
  }
  EXPECT_TRUE(Load(hanging.store(), "a").ok());
  EXPECT_EQ(hanging.store().count(), 1);
}

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
    EXPECT_EQ(wire::ReasonOf(other.status()), wire::reason::kWorkerMemory.name) << other.status();
    EXPECT_EQ(store.count(), 1);
  }
  EXPECT_TRUE(Load(store, "b").ok());
}

TEST_F(ModelStoreTest, AModelLargerThanTheLimitIsRefused) {
  ModelStore store(folder_.path(), one_ - 1);
  const auto model = Load(store, "a");
  EXPECT_EQ(wire::ReasonOf(model.status()), wire::reason::kWorkerMemory.name) << model.status();
}

}  // namespace
}  // namespace hilbert_ring::server
