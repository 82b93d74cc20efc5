#include "wire/flag_values.h"

#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace hilbert_ring::wire {
namespace {

TEST(FlagValues, AWholeNumberHasDecimalDigits) {
  for (const auto& [text, value] : {std::pair{"0", "0"},
                                    {"0064", "64"},
                                    {"-010", "-10"},
                                    {"9223372036854775807", "9223372036854775807"},
                                    {"-9223372036854775808", "-9223372036854775808"}}) {
    std::string number = text;
    EXPECT_EQ(WrongWholeNumber(number), "") << text;
    EXPECT_EQ(number, value);
  }
  for (const char* text : {"", "-", "+1", " 1", "1 ", "0x1", "1e2", "1.0", "1_000", "--1", "nan",
                           "9223372036854775808", "-9223372036854775809"}) {
    std::string number = text;
    EXPECT_NE(WrongWholeNumber(number), "") << text;
  }
}

TEST(FlagValues, ANumberIsFinite) {
  for (const char* text : {"0", "-0.5", "1e9", "010", ".5"})
    EXPECT_EQ(WrongNumber(text), "") << text;
  for (const char* text : {"", "nan", "inf", "1e400", "0x10", "1,5", "1s", "-"}) {
    EXPECT_NE(WrongNumber(text), "") << text;
  }
}

TEST(FlagValues, ATruthValueIsTrueOrFalse) {
  EXPECT_EQ(WrongTruthValue("true"), "");
  EXPECT_EQ(WrongTruthValue("false"), "");
  for (const char* text : {"", "1", "0", "TRUE", "yes", "1x", "true "}) {
    EXPECT_NE(WrongTruthValue(text), "") << text;
  }
}

TEST(FlagValues, BytesHaveASuffixOrNone) {
  for (const auto& [text, bytes] : {std::pair{"0", "0"},
                                    {"010", "10"},
                                    {"7b", "7"},
                                    {"2k", "2048"},
                                    {"2KB", "2048"},
                                    {"2 kib", "2048"},
                                    {"1Mi", "1048576"},
                                    {"1GiB", "1073741824"},
                                    {"1t", "1099511627776"},
                                    {"1pib", "1125899906842624"},
                                    {"4EiB", "4611686018427387904"},
                                    {"4611686018427387904", "4611686018427387904"}}) {
    std::string number = text;
    EXPECT_EQ(WrongByteCount(number), "") << text;
    EXPECT_EQ(number, bytes) << text;
  }
  for (const char* text :
       {"", "-1", "MiB", "1.5GiB", "0x10", "1kk", "1ibk", "1ZiB", "5EiB", "1 k b",
        "4611686018427387905", "99999999999999999999", "99999999999999999999GiB"}) {
    std::string number = text;
    EXPECT_NE(WrongByteCount(number), "") << text;
  }
}

}  // namespace
}  // namespace hilbert_ring::wire
