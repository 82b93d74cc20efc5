#include "server/models/model_catalog.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/models/model_scan.h"
#include "tests/golden/encoder_case.h"
#include "tests/support/captured_log.h"
#include "tests/support/test_folder.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class ModelCatalogTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(models_); }
  std::string Path(const std::string& name) const { return absl::StrCat(models_, "/", name); }

  const testing::TestFolder folder_;
  const std::string models_ = folder_ / "models";
};

TEST_F(ModelCatalogTest, NoNameLeavesTheFolder) {
  fs::create_directories(folder_ / "outside");
  fs::create_directories(Path("inside/deeper"));
  ModelCatalog catalog(models_);
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("../outside"),
        folder_ / "outside", std::string("inside/deeper"), std::string("inside\0x", 8),
        std::string("m\xc3\xbcller"), std::string("\xff\xfe"), std::string("a b"),
        std::string(".hidden"), std::string(129, 'a'), std::string(1 << 20, 'a')}) {
    const absl::Status status = catalog.Open(name).status();
    EXPECT_EQ(wire::ReasonOf(status), "INVALID_SPEC") << status;
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("a name of ", name.size())));
    EXPECT_LT(status.message().size(), 200u) << "a name must not fill logs";
  }
  EXPECT_EQ(wire::ReasonOf(catalog.Open(std::string(128, 'a')).status()), "MODEL_NOT_FOUND");
  EXPECT_EQ(wire::ReasonOf(catalog.Open("inside").status()), "MODEL_UNUSABLE");
}

TEST_F(ModelCatalogTest, OnlyAFolderIsAModel) {
  std::ofstream(Path("file")) << "x";
  fs::create_symlink(Path("nowhere"), Path("dangling"));
  fs::create_directories(Path("folder"));
  ModelCatalog catalog(models_);
  EXPECT_EQ(wire::ReasonOf(catalog.Open("file").status()), "MODEL_NOT_FOUND");
  EXPECT_EQ(wire::ReasonOf(catalog.Open("dangling").status()), "MODEL_NOT_FOUND");
  const auto entries = catalog.List().entries;
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].name, "folder");
}

TEST_F(ModelCatalogTest, OnlyTheFirstOfManyModelsAreSeenWhichIsLoggedOnce) {
  constexpr int kFolders = 300;
  for (int i = 0; i < kFolders; ++i) fs::create_directories(Path(absl::StrCat("m", 1000 + i)));
  ModelCatalog catalog(models_);
  const auto entries = catalog.List().entries;
  ASSERT_EQ(entries.size(), ModelCatalog::kMostModels);
  EXPECT_EQ(entries.front().name, "m1000");
  EXPECT_EQ(entries.back().name, "m1255");
  const testing::CapturedLog log;
  {
    const ModelScan scan(catalog, std::chrono::milliseconds(1));
    fs::create_directories(Path("m0999"));  // a later look finds it
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (log.Count("model m0999") == 0 && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(log.Count("model m0999"), 1);
  }
  EXPECT_EQ(log.Count("of more than 256 models the first by name are used"), 1);
  EXPECT_EQ(log.Count("model m1000"), 1);
}

TEST_F(ModelCatalogTest, AFolderWithAnInvalidNameIsLogged) {
  for (const char* name : {"my model", ".hidden", "m\303\266del"}) {
    fs::create_directories(Path(name));
    std::ofstream(Path(absl::StrCat(name, "/config.json"))) << "{}";
  }
  fs::create_directories(Path("no model"));  // has no config
  ModelCatalog catalog(models_);
  const testing::CapturedLog log;
  { const ModelScan scan(catalog, std::chrono::hours(1)); }
  for (const char* name : {"my model", ".hidden", "m\303\266del"}) {
    EXPECT_EQ(log.Count(absl::StrCat("the folder '", name, "' is ignored: model: a name of ")), 1)
        << log.text();
  }
  EXPECT_EQ(log.Count("is ignored"), 3) << log.text();
}

class ModelVersions : public ModelCatalogTest {
 protected:
  void Install(const std::string& name, const std::string& golden) const {
    const std::string from = testing::LoadEncoderCase(golden).value().folder;
    const std::string whole = folder_ / "whole";
    fs::create_directories(whole);
    for (const char* file : {"config.json", "model.safetensors"}) {
      fs::copy_file(absl::StrCat(from, "/", file), absl::StrCat(whole, "/", file));
    }
    fs::remove_all(Path(name));
    fs::rename(whole, Path(name));
  }
  std::string DigestOf(const std::string& name) {
    return ModelCatalog(models_).Open(name).value().digest();
  }
};

TEST_F(ModelVersions, AnotherVersionIsRefused) {
  Install("m", "slide_small");
  ModelCatalog catalog(models_);
  const std::string digest = DigestOf("m");
  EXPECT_EQ(catalog.Open("m", digest)->digest(), digest);
  EXPECT_TRUE(catalog.Open("m", "").ok()) << "any";
  const absl::Status other = catalog.Open("m", std::string(digest.size(), '0')).status();
  EXPECT_EQ(wire::ReasonOf(other), "MODEL_CHANGED");
  EXPECT_THAT(other.message(), HasSubstr(digest));
  EXPECT_THAT(other.message(), HasSubstr("must be " + std::string(digest.size(), '0')));
}

// A worker registers while it still reads its models.
TEST_F(ModelVersions, AModelThatIsReadLateIsOfferedLater) {
  Install("m", "slide_small");
  ModelCatalog catalog(models_);
  const ModelScan scan(catalog, std::chrono::hours(1), std::chrono::milliseconds(0));
  v1::Heartbeat heartbeat;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (heartbeat.models_size() == 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    scan.AddTo(heartbeat);
  }
  EXPECT_EQ(heartbeat.models_size(), 1);
}

TEST_F(ModelVersions, ALaterLookFindsANewVersion) {
  Install("m", "slide_small");
  ModelCatalog catalog(models_);
  const ModelScan scan(catalog, std::chrono::milliseconds(1));
  const auto seen = [&] {
    v1::Heartbeat heartbeat;
    scan.AddTo(heartbeat);
    return heartbeat.models_size() == 1 ? heartbeat.models(0).digest() : "";
  };
  const std::string first = DigestOf("m");
  EXPECT_EQ(seen(), first);
  Install("m", "slide_odd_dims");
  const std::string second = DigestOf("m");
  ASSERT_NE(second, first);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (seen() != second && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(seen(), second);
}

}  // namespace
}  // namespace hilbert_ring::server
