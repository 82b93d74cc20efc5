#include "engine/model/files/safetensors.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "engine/base/return_if_error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/model/safetensors_text.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kTwo[] = R"({"__metadata__":{"format":"pt"},)"
                        R"("b":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},)"
                        R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})";

std::string MessageOf(std::string_view header, int64_t data_bytes) {
  const auto entries = ParseText(SafetensorsText(header, data_bytes));
  EXPECT_TRUE(absl::IsInvalidArgument(entries.status())) << header;
  return std::string(entries.status().message());
}

absl::StatusOr<SafetensorsFile> ReadFile(const std::string& path) {
  ASSIGN_OR_RETURN(ReadableFile file, ReadableFile::Open(path));
  return SafetensorsFile::Read(std::move(file));
}

class Folder {
 public:
  Folder() : path_(::testing::TempDir() + "safetensors_test_" + std::to_string(getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << text;
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

TEST(Safetensors, AScalarAndAnEmptyTensor) {
  const auto entries =
      ParseText(SafetensorsText(R"({"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
                                R"("e":{"dtype":"F32","shape":[0,7],"data_offsets":[8,8]}})",
                                8));
  ASSERT_TRUE(entries.ok()) << entries.status();
  EXPECT_EQ((*entries)[0].elements(), 0);
  EXPECT_EQ((*entries)[1].elements(), 1);
}

TEST(Safetensors, AHeaderThatDoesNotFitItsFileIsRefused) {
  EXPECT_FALSE(ParseText("").ok());
  EXPECT_FALSE(ParseText(std::string(7, '\0')).ok());
  for (const size_t cut : {size_t{8}, size_t{9}, sizeof(kTwo) + 5}) {
    const auto entries = ParseText(SafetensorsText(kTwo, 28).substr(0, cut));
    EXPECT_TRUE(absl::IsInvalidArgument(entries.status())) << cut;
    EXPECT_THAT(std::string(entries.status().message()), HasSubstr("must be at most"));
  }
  std::string huge = SafetensorsText(kTwo, 28);
  huge.replace(0, 8, 8, '\xff');
  EXPECT_FALSE(ParseText(huge).ok());
}

TEST(Safetensors, WhatIsWrongIsNamed) {
  EXPECT_THAT(MessageOf(kTwo, 27), HasSubstr(R"(tensor "b" has data_offsets [4, 28])"));
  EXPECT_THAT(MessageOf(kTwo, 29), HasSubstr("1 bytes of no tensor"));
  EXPECT_THAT(MessageOf("[]", 0), HasSubstr("must be an object"));
  EXPECT_THAT(MessageOf(R"({"a":3})", 0), HasSubstr(R"(tensor "a" is no object)"));
  EXPECT_THAT(MessageOf(R"({"a":{},"a":{}})", 0), HasSubstr("more than once"));
  struct {
    const char *tensors, *words;
  } const of_4_bytes[] = {
      {R"("dtype":"U8","shape":[2],"data_offsets":[2,0])", "must rise within [0, 4]"},
      {R"("dtype":"U8","shape":[2],"data_offsets":[-2,0])", "must rise"},
      {R"("dtype":"U8","shape":[2],"data_offsets":[0])", "1 data_offsets, must have 2"},
      {R"("dtype":"F32","shape":[2],"data_offsets":[0,4])",
       "between its data_offsets, must have 8"},
      // The product of the axes is 2^64: 0 in 64 bits.
      {R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])",
       "more than a file can"},
      {R"("dtype":"U8","shape":[-1,-1],"data_offsets":[0,1])", "more than a file can"},
      {R"("dtype":"F31","shape":[1],"data_offsets":[0,4])", R"(unknown dtype "F31")"},
      {R"("shape":[],"data_offsets":[0,0])", "dtype is required"},
      {R"("dtype":4,"shape":[],"data_offsets":[0,0])", "dtype is 4"},
      {R"("dtype":"U8","shape":[1.5],"data_offsets":[0,0])", "shape[0]"},
      {R"("dtype":"U8","shape":[3],"data_offsets":[0,3]},
        "b":{"dtype":"U8","shape":[2],"data_offsets":[2,4])",
       R"("b" begins at byte 2 of the data, before the end of another at 3)"},
      {R"("dtype":"U8","shape":[1],"data_offsets":[0,1]},
        "b":{"dtype":"U8","shape":[1],"data_offsets":[3,4])",
       "behind 2 bytes of no tensor"}};
  for (const auto& [tensors, words] : of_4_bytes) {
    EXPECT_THAT(MessageOf(std::string(R"({"a":{)") + tensors + "}}", 4), HasSubstr(words));
  }
}

TEST(Safetensors, NumbersAreWidened) {
  const Folder folder;
  std::string text = SafetensorsText(R"({"b":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
                                     R"("h":{"dtype":"F16","shape":[1],"data_offsets":[4,6]},)"
                                     R"("f":{"dtype":"F32","shape":[1],"data_offsets":[6,10]},)"
                                     R"("i":{"dtype":"I32","shape":[1],"data_offsets":[10,14]}})",
                                     14);
  // 1.5 and -2 in bfloat16, 0.5 in float16, pi in float32, unaligned.
  const std::string data("\xc0\x3f\x00\xc0\x00\x38\xdb\x0f\x49\x40", 10);
  text.replace(text.size() - 14, 10, data);
  const auto file = ReadFile(folder.Write("numbers", text));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto floats = [&](const char* name) {
    const SafetensorsEntry* entry = file->Find(name);
    std::vector<float> values(static_cast<size_t>(entry->elements()));
    EXPECT_TRUE(file->Widen(*entry, values).ok());
    return values;
  };
  EXPECT_THAT(floats("b"), ElementsAre(1.5f, -2.0f));
  EXPECT_THAT(floats("h"), ElementsAre(0.5f));
  EXPECT_THAT(floats("f"), ElementsAre(3.14159274f));
  float value = 0;
  const absl::Status whole = file->Widen(*file->Find("i"), {&value, 1});
  EXPECT_THAT(std::string(whole.message()), HasSubstr("dtype I32, must be F32, BF16 or F16"));
  EXPECT_EQ(file->Find("none"), nullptr);
  EXPECT_EQ(file->Find(""), nullptr);
}

TEST(Safetensors, ErrorsNameTheFile) {
  const Folder folder;
  EXPECT_TRUE(absl::IsNotFound(ReadFile("/nowhere/x").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadFile("/").status()));
  const std::string path = folder.Write("broken", "x");
  EXPECT_THAT(std::string(ReadFile(path).status().message()), HasSubstr(path));
  const std::string empty = folder.Write("empty", "");
  EXPECT_TRUE(absl::IsInvalidArgument(ReadFile(empty).status()));
}

}  // namespace
}  // namespace hilbert_ring::testing
