#include "client/cli/table.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace hilbert_ring::cli {
namespace {

TEST(Table, ControlCharactersOfACellAreEscaped) {
  EXPECT_EQ(FormatTable({{"worker", "job"}, {"a\x1b[2J\u0085", "\r\n\x7f"}, {"caf\u00e9 \\", "b"}}),
            "worker                 job\n"
            "a\\x1b[2J\\xc2\\x85  \\r\\n\\x7f\n"
            "caf\u00e9 \\                  b\n");
}

TEST(Table, ALongCellDoesNotMakeAllOthersAsLong) {
  std::vector<std::vector<std::string>> rows(1000, {"a", "b"});
  rows.push_back({std::string(100'000, 'x'), std::string(199, 'y') + "\u00e9\u00e9"});
  const std::string table = FormatTable(rows);
  EXPECT_LT(table.size(), 1001u * 500);
  EXPECT_NE(table.find(std::string(200, 'x') + "... (100000 bytes)"), std::string::npos);
  EXPECT_NE(table.find(std::string(199, 'y') + "... (203 bytes)"), std::string::npos);
}

TEST(Table, FiguresThatAreNoneAreShort) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double odd : {nan, HUGE_VAL, -HUGE_VAL, 1e300, -1e300}) {
    for (const std::string& text :
         {FormatSeconds(odd), FormatRate(odd), FormatBytes(odd), FormatFlops(odd)}) {
      EXPECT_LT(text.size(), 20u) << text;
    }
  }
  EXPECT_EQ(FormatSeconds(nan), "nan s");
  EXPECT_EQ(FormatRate(1234567.8), "1,234,567");
  EXPECT_EQ(FormatSeconds(125), "2 min 5 s");
}

}  // namespace
}  // namespace hilbert_ring::cli
