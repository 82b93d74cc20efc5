#include "engine/model/encoder_model.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/load_encoder.h"
#include "tests/golden/encoder_case.h"
#include "tests/golden/npy_values.h"

namespace hilbert_ring {
namespace {

using ::testing::HasSubstr;

// A copy of a golden case's model that tests change.
class ModelFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto golden = testing::LoadEncoderCase("slide_small");
    ASSERT_TRUE(golden.ok()) << golden.status();
    folder_ = absl::StrCat(::testing::TempDir(), "encoder_model_test_", getpid());
    std::filesystem::create_directories(folder_);
    for (const char* file : {kConfigFile, kWeightsFile}) {
      Write(file, testing::ReadFile(golden->folder + "/" + file));
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& file, const std::string& text) const {
    std::ofstream(folder_ + "/" + file, std::ios::binary) << text;
  }

  // `from` and `to` have one length, so that the header's offsets hold.
  void Change(const std::string& file, const std::string& from, const std::string& to) const {
    const std::string text = testing::ReadFile(folder_ + "/" + file);
    const std::string changed = absl::StrReplaceAll(text, {{from, to}});
    ASSERT_NE(text, changed) << from;
    Write(file, changed);
  }

  std::string Message() const {
    const auto model = testing::LoadEncoder(folder_, {});
    EXPECT_FALSE(model.ok());
    return std::string(model.status().message());
  }

  std::string folder_;
};

TEST_F(ModelFolder, MissingWeightsAreNamed) {
  Change(kWeightsFile, "encoder.layers.1.ffn.fc1.bias", "encoder.layers.1.ffn.fc1.bxas");
  EXPECT_THAT(Message(), HasSubstr("encoder.layers.1.ffn.fc1.bias is missing"));
  EXPECT_THAT(Message(),
              HasSubstr(R"("encoder.layers.1.ffn.fc1.bxas" is no weight of this encoder)"));
  EXPECT_THAT(Message(), HasSubstr(folder_));
}

TEST_F(ModelFolder, MisshapenWeightsAreNamed) {
  Change(kWeightsFile, "[1,1,32]", "[1,32,1]");
  EXPECT_THAT(Message(), HasSubstr("cls_token is [1, 32, 1], must be [1, 1, 32]"));
}

TEST_F(ModelFolder, WeightsOfOtherTypesAreRefused) {
  // Declares the last norm's 32 numbers as integers.
  const std::string text = testing::ReadFile(folder_ + "/" + kWeightsFile);
  const size_t at = text.find("\"norm.bias\"");
  ASSERT_NE(at, text.npos);
  std::string changed = text;
  changed.replace(changed.find("F32", at), 3, "I32");
  Write(kWeightsFile, changed);
  EXPECT_THAT(Message(), HasSubstr("norm.bias is of dtype I32"));
}

}  // namespace
}  // namespace hilbert_ring
