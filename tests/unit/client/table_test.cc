#include "client/cli/table.h"

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

}  // namespace
}  // namespace hilbert_ring::cli
