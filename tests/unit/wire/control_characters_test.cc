#include "wire/control_characters.h"

#include "gtest/gtest.h"

namespace hilbert_ring::wire {
namespace {

TEST(ControlCharacters, AreEscapedAndNothingElseIs) {
  EXPECT_EQ(EscapeControls("a\nb\r\tc"), "a\\nb\\r\\tc");
  EXPECT_EQ(EscapeControls("\x1b[31mred\x7f"), "\\x1b[31mred\\x7f");
  EXPECT_EQ(EscapeControls(std::string("\0", 1)), "\\x00");
  EXPECT_EQ(EscapeControls("\xc2\x9b"
                           "31m"),
            "\\xc2\\x9b31m");
  for (const char* text : {"", "two words", "C:\\n", "\xc2\xa0", "Gr\xc3\xbc\xc3\x9f", "\xc2"}) {
    EXPECT_EQ(EscapeControls(text), text);
  }
}

TEST(ControlCharacters, AreReplaced) {
  std::string text = "dev\nice\x1b[31m\xc2\x9b\xc3\xbc";
  EXPECT_TRUE(ReplaceControls(text));
  EXPECT_EQ(text, "dev?ice?[31m??\xc3\xbc");
  const std::string before = text;
  EXPECT_FALSE(ReplaceControls(text));
  EXPECT_EQ(text, before);
}

TEST(ControlCharacters, JsonKeepsItsLayout) {
  EXPECT_EQ(PrintableJson("{\n\t\"a\": \"\x7f\u0085\u009f\u00a0\"\r\n}"),
            "{\n\t\"a\": \"\\u007f\\u0085\\u009f\u00a0\"\r\n}");
}

TEST(ControlCharacters, WhatIsLongIsCutBetweenCharacters) {
  EXPECT_EQ(Shortened("abc", 3), "abc");
  EXPECT_EQ(Shortened("abcd", 3), "abc... (4 bytes)");
  EXPECT_EQ(Shortened("ab\u00e9", 3), "ab... (4 bytes)");
  EXPECT_EQ(Legible("\x1b\x1b", 4), "\\x1b... (8 bytes)");
}

}  // namespace
}  // namespace hilbert_ring::wire
