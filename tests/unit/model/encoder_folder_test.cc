// Valid and invalid folders of models, and folders that change while they are read.
#include "engine/model/files/encoder_folder.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/model/encoder_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/golden/encoder_case.h"
#include "tests/golden/npy_values.h"
#include "tests/support/test_folder.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::HasSubstr;

class EncoderFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "encoder_folder_test_", getpid());
    std::filesystem::create_directories(folder_);
    CopyCase("slide_small");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void CopyCase(const std::string& name) const {
    const auto golden = LoadEncoderCase(name);
    ASSERT_TRUE(golden.ok()) << golden.status();
    for (const char* file : {kConfigFile, kWeightsFile}) {
      Write(file, ReadFile(golden->folder + "/" + file));
    }
  }

  void Write(const std::string& file, const std::string& text) const {
    std::ofstream(folder_ + "/" + file, std::ios::binary) << text;
  }

  void Replace(const std::string& file, const std::string& text) const {
    Write("new", text);
    std::filesystem::rename(folder_ + "/new", folder_ + "/" + file);
  }

  std::string Text(const std::string& file) const { return ReadFile(folder_ + "/" + file); }

  std::string OtherWeights() const {
    std::string text = Text(kWeightsFile);
    text.back() = static_cast<char>(text.back() ^ 1);
    return text;
  }

  EncoderFolder Open() {
    auto folder = EncoderFolder::Open(folder_, digests_);
    EXPECT_TRUE(folder.ok()) << folder.status();
    return *std::move(folder);
  }

  std::string folder_;
  absl::Duration later_ = absl::Hours(1);
  FileDigests digests_{[this] { return absl::Now() + later_; }};
};

TEST_F(EncoderFolderTest, GivesConfigDigestAndNorm) {
  const EncoderFolder folder = Open();
  EXPECT_EQ(folder.config().layers, 2);
  EXPECT_EQ(folder.config_text(), Text(kConfigFile));
  const auto sum = [](const std::string& text) {
    return Sha256(std::as_bytes(std::span(text.data(), text.size())));
  };
  std::string both;
  for (const char* file : {kConfigFile, kWeightsFile}) {
    const Digest digest = sum(Text(file));
    both.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  }
  EXPECT_EQ(folder.digest(), HexOf(sum(both)));
  const auto norm = folder.LoadNorm();
  ASSERT_TRUE(norm.ok()) << norm.status();
  const auto model = EncoderModel::Load(folder, {});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->digest(), folder.digest());
  for (int64_t x = 0; x < norm->dim(); ++x) {
    EXPECT_EQ(norm->view().weight[x], (*model)->weights().norm->view().weight[x]);
    EXPECT_EQ(norm->view().bias[x], (*model)->weights().norm->view().bias[x]);
  }
  EXPECT_EQ(norm->view().epsilon, (*model)->weights().norm->view().epsilon);
  EXPECT_NE(norm->view().weight[0], norm->view().bias[0]);
}

// FIPS 180-2's example.
TEST(Sha256Test, OfAbc) {
  const std::string abc = "abc";
  EXPECT_EQ(HexOf(Sha256(std::as_bytes(std::span(abc.data(), abc.size())))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_F(EncoderFolderTest, TheDigestIsOfAllBytes) {
  const std::string digest = Open().digest();
  EXPECT_EQ(Open().digest(), digest);
  Replace(kConfigFile, Text(kConfigFile) + " ");
  const std::string of_other_config = Open().digest();
  EXPECT_NE(of_other_config, digest);
  Replace(kWeightsFile, OtherWeights());
  EXPECT_NE(Open().digest(), of_other_config);
}

TEST_F(EncoderFolderTest, WeightsThatHaveNotChangedAreReadOnce) {
  Open();
  const int64_t once = digests_.bytes_read();
  EXPECT_EQ(once, std::ssize(Text(kWeightsFile)));
  Open();
  EXPECT_EQ(digests_.bytes_read(), once);
  Replace(kWeightsFile, Text(kWeightsFile));
  Open();
  EXPECT_EQ(digests_.bytes_read(), 2 * once);
}

TEST_F(EncoderFolderTest, AKnownVersionIsTakenOnlyWhileBothFilesAreItsOwn) {
  const EncoderFolder first = Open();
  const auto known = first.version();
  ASSERT_NE(known, nullptr);
  EXPECT_EQ(EncoderFolder::Open(folder_, digests_, known)->version(), known);
  for (const char* file : {kConfigFile, kWeightsFile}) {
    const std::string digest = Open().digest();
    const auto current = Open().version();
    Replace(file, file == kConfigFile ? Text(file) + " " : OtherWeights());
    const auto changed = EncoderFolder::Open(folder_, digests_, current);
    ASSERT_TRUE(changed.ok()) << changed.status();
    EXPECT_NE(changed->digest(), digest) << file;
  }
  later_ = absl::ZeroDuration();
  Replace(kConfigFile, Text(kConfigFile) + " ");
  EXPECT_EQ(Open().version(), nullptr);  // it may change again without a new time
}

// A file that was just written may change again without a new time.
TEST_F(EncoderFolderTest, FilesThatWereJustWrittenAreReadEachTime) {
  later_ = absl::ZeroDuration();
  const std::string digest = Open().digest();
  const int64_t once = digests_.bytes_read();
  EXPECT_EQ(Open().digest(), digest);
  EXPECT_EQ(digests_.bytes_read(), 2 * once);
  const auto time = std::filesystem::last_write_time(folder_ + "/" + kWeightsFile);
  Write(kWeightsFile, OtherWeights());
  std::filesystem::last_write_time(folder_ + "/" + kWeightsFile, time);
  EXPECT_NE(Open().digest(), digest);
}

TEST_F(EncoderFolderTest, FilesThatAreReplacedStayAsTheyWere) {
  const EncoderFolder folder = Open();
  const auto before = EncoderModel::Load(folder, {});
  Replace(kWeightsFile, OtherWeights());
  Replace(kConfigFile, "{}");
  const auto model = EncoderModel::Load(folder, {});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->weights().norm->view().bias[31], (*before)->weights().norm->view().bias[31]);
}

TEST_F(EncoderFolderTest, WeightsThatAreWrittenOverAreNoModel) {
  const EncoderFolder folder = Open();
  Write(kWeightsFile, OtherWeights());
  EXPECT_TRUE(absl::IsUnavailable(EncoderModel::Load(folder, {}).status()));
  EXPECT_TRUE(absl::IsUnavailable(folder.CheckUnchanged()));
}

TEST_F(EncoderFolderTest, WhatIsNoFolderIsNamed) {
  const absl::Status none = EncoderFolder::Open(folder_ + "/none", digests_).status();
  EXPECT_TRUE(absl::IsNotFound(none)) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr(folder_ + "/none"));
  EXPECT_FALSE(EncoderFolder::Open(folder_ + "/" + kConfigFile, digests_).ok());
  std::filesystem::remove(folder_ + "/" + kWeightsFile);
  std::filesystem::create_directory(folder_ + "/" + kWeightsFile);
  const absl::Status status = EncoderFolder::Open(folder_, digests_).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.safetensors is not a file"));
}

TEST_F(EncoderFolderTest, MemoryIsKnownAndBoundedBeforeItIsTaken) {
  const EncoderFolder folder = Open();
  for (const DataType compute : {DataType::kFloat32, DataType::kBFloat16}) {
    const auto bytes = PackedBytes(folder.config(), {.compute = compute});
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const auto model = EncoderModel::Load(folder, {.compute = compute, .max_bytes = *bytes});
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->bytes(), *bytes);
    EXPECT_GE(*bytes, WeightBytes(folder.config(), StorageOf((*model)->operand())));
    const absl::Status over =
        EncoderModel::Load(folder, {.compute = compute, .max_bytes = *bytes - 1}).status();
    EXPECT_TRUE(absl::IsResourceExhausted(over)) << over;
    EXPECT_THAT(std::string(over.message()), HasSubstr(absl::StrCat(*bytes, " bytes of memory")));
  }
}

TEST(FileDigestsTest, AreNotTakenToTheirEndsWhenTheProcessStops) {
  const testing::TestFolder folder;
  const std::string path = folder / "weights";
  std::ofstream(path).put('x');
  std::filesystem::resize_file(path, uintmax_t{1} << 40);  // sparse; takes half an hour to read
  const auto file = ReadableFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  FileDigests digests;
  auto digest = std::async(std::launch::async, [&] { return digests.Of(*file).status(); });
  EXPECT_EQ(digest.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  digests.Stop();
  ASSERT_EQ(digest.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_TRUE(absl::IsCancelled(digest.get()));
}

}  // namespace
}  // namespace hilbert_ring::testing
