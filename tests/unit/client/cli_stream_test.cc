// `hilbert-ring attend --stream` to a pipe that nobody reads.
#include <sys/stat.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/fake_service.h"
#include "tests/unit/client/run_cli.h"
#include "tests/unit/client/test_files.h"

namespace hilbert_ring::client {
namespace {

using ::testing::HasSubstr;

class CliStream : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"in", "out"}) {
      ASSERT_EQ(mkfifo(files_.Path(name).c_str(), 0600), 0);
    }
  }

  // The program in the background, from "in" to "out"; `then` is what the shell does once it has
  // opened "in", from when on it catches signals. It is killed after 20 s.
  CliResult Stream(const std::string& flags, const std::string& then) const {
    return RunShell(absl::StrCat(
        "$CLI attend --stream --server ", service_.address(),
        " --segments 2 --dilations 1 --heads 1 --head-dim 8 --dtype float32 --qkv ",
        files_.Path("in"), " --out ", files_.Path("out"), flags, " & P=$!; exec 7>",
        files_.Path("in"), "; ", then,
        "; I=0; while [ -e /proc/$P/exe ] && [ $I -lt 200 ]; do sleep 0.1; I=$((I + 1)); done; "
        "kill -KILL $P; wait $P"));
  }

  const FakeService service_;
  const TestFiles files_;
};

TEST_F(CliStream, APipeThatNobodyReadsIsWaitedForUntilASignal) {
  for (const char* signal : {"INT", "TERM", "HUP", "QUIT"}) {
    const CliResult result = Stream("", absl::StrCat("kill -", signal, " $P"));
    EXPECT_EQ(result.code, 1) << signal << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr("CANCELLED: "));
    EXPECT_THAT(result.err, HasSubstr("/out: ended while nobody read it"));
  }
}

TEST_F(CliStream, APipeThatNobodyReadsIsWaitedForUntilTheDeadline) {
  const CliResult result = Stream(" --deadline 0.3", "true");
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("DEADLINE_EXCEEDED: "));
  EXPECT_THAT(result.err, HasSubstr("/out: the job's deadline passed while nobody read it"));
}

}  // namespace
}  // namespace hilbert_ring::client
