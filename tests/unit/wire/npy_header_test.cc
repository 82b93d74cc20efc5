#include "wire/npy_header.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring::wire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Header(int major, std::string_view dictionary) {
  std::string file = "\x93NUMPY";
  file.push_back(static_cast<char>(major));
  file.push_back(0);
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) {
    file.push_back(static_cast<char>((dictionary.size() >> (8 * i)) & 0xff));
  }
  return file.append(dictionary);
}

constexpr std::string_view kPlain =
    "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }      \n";

TEST(NpyHeader, ReadsEveryVersion) {
  for (int major : {1, 2, 3}) {
    const auto header = ParseNpyHeader(Header(major, kPlain));
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->type, NpyType::kFloat32);
    EXPECT_THAT(header->shape, ElementsAre(3, 4));
    EXPECT_EQ(header->data_bytes, 48);
    EXPECT_EQ(header->data_offset, static_cast<int64_t>((major == 1 ? 10 : 12) + kPlain.size()));
  }
}

TEST(NpyHeader, KnowsFortranOrderWhereItMakesADifference) {
  const auto order = [](std::string_view shape) {
    return ParseNpyHeader(
               Header(1, absl::StrCat("{'descr': '<f4', 'fortran_order': True, 'shape': ",
                                      std::string(shape), "}")))
        ->fortran_order;
  };
  EXPECT_TRUE(order("(3, 4)"));
  EXPECT_TRUE(order("(1, 3, 4)"));
  EXPECT_FALSE(order("(1, 4)"));
  EXPECT_FALSE(order("(4,)"));
  EXPECT_FALSE(order("()"));
  EXPECT_FALSE(ParseNpyHeader(Header(1, kPlain))->fortran_order);
}

TEST(NpyHeader, WritesWhatItReads) {
  for (NpyType type :
       {NpyType::kFloat16, NpyType::kFloat32, NpyType::kFloat64, NpyType::kRaw16, NpyType::kInt16,
        NpyType::kUInt16, NpyType::kInt32, NpyType::kUInt32, NpyType::kInt64, NpyType::kUInt64}) {
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{}, {5}, {0, 8}, {int64_t{1} << 40, 2, 8}}) {
      const std::string text = FormatNpyHeader(type, shape);
      EXPECT_EQ(text.size() % 64, 0u);
      const auto header = ParseNpyHeader(text);
      ASSERT_TRUE(header.ok()) << header.status();
      EXPECT_EQ(header->type, type);
      EXPECT_EQ(header->shape, shape);
      EXPECT_EQ(header->data_offset, static_cast<int64_t>(text.size()));
    }
  }
}

TEST(NpyHeader, WhatIsRefusedIsNamed) {
  const std::string start = "{'descr': '<f4', 'fortran_order': False, 'shape': ";
  for (const auto& [dictionary, message] : std::vector<std::pair<std::string, const char*>>{
           {"", "expected a dictionary"},
           {"{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", "array.astype('<f4')"},
           {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", "'<c8' is not known"},
           {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "structures"},
           {"{'descr': '<f4', 'fortran_order': 0, 'shape': (1, 2)}", "True or False"},
           {start + "(-1,)}", "axis 0"},
           {start + "(1)}", "tuple"},
           {start + "(1 2)}", "expected ','"},
           {start + "(9223372036854775807, 2)}", "more than 2^63 bytes"},
           {start + "(9223372036854775808,)}", "axis 0"},
           {"{'descr': '<f4', 'fortran_order': False}", "'shape' is missing"},
           {start + "(), 'descr': '<f4'}", "'descr' is not known, or given twice"},
           {start + "(), 'x': 1}", "'x'"},
           {start + "()} 1", "after the dictionary"}}) {
    const absl::Status status = ParseNpyHeader(Header(1, dictionary)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
}

}  // namespace
}  // namespace hilbert_ring::wire
