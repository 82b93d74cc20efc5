#include "client/cli/table.h"

#include "gtest/gtest.h"

namespace hilbert_ring::cli {
namespace {

TEST(Table, ControlCharactersOfACellAreEscaped) {
  EXPECT_EQ(FormatTable({{"worker", "job"}, {"a\x1b[2J\u0085", "\r\n\x7f"}, {"caf\u00e9 \\", "b"}}),
            "worker                 job\n"
            "a\\x1b[2J\\xc2\\x85  \\r\\n\\x7f\n"
            "caf\u00e9 \\                  b\n");
}

}  // namespace
}  // namespace hilbert_ring::cli
