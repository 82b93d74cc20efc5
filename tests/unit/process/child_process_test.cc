#include "server/process/child_process.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string EnvironmentOfChild(const std::vector<std::string>& variables) {
  const std::string file = absl::StrCat(::testing::TempDir(), "/environment_", getpid());
  const auto pid = StartChild("/bin/sh", {"-c", absl::StrCat("/usr/bin/env > ", file)}, variables);
  EXPECT_TRUE(pid.ok()) << pid.status();
  std::string how;
  for (int i = 0; i < 2000 && ChildRuns(*pid, how); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(how, "exit status 0");
  std::stringstream text;
  text << '\n' << std::ifstream(file).rdbuf();
  std::filesystem::remove(file);
  return text.str();
}

TEST(ChildProcess, InheritsTheEnvironmentWithoutSettings) {
  setenv("HILBERT_RING_TEST_SETTING", "1", 1);
  setenv("NCCL_DEBUG", "WARN", 1);
  const std::string environment = EnvironmentOfChild({});
  EXPECT_THAT(environment, HasSubstr("\nPATH="));
  EXPECT_THAT(environment, HasSubstr("\nNCCL_DEBUG=WARN\n"));
  EXPECT_THAT(environment, Not(HasSubstr("HILBERT_RING_TEST_SETTING")));
}

TEST(ChildProcess, VariablesComeOnTopAndReplaceTheirNamesakes) {
  setenv("NCCL_HOSTID", "machine", 1);
  setenv("NCCL_HOSTID_OTHER", "kept", 1);
  const std::string environment =
      EnvironmentOfChild({"NCCL_HOSTID=rank3", "NCCL_NET=Socket", "EMPTY="});
  EXPECT_THAT(environment, HasSubstr("\nNCCL_HOSTID=rank3\n"));
  EXPECT_THAT(environment, Not(HasSubstr("NCCL_HOSTID=machine")));
  EXPECT_THAT(environment, HasSubstr("\nNCCL_HOSTID_OTHER=kept\n"));
  EXPECT_THAT(environment, HasSubstr("\nNCCL_NET=Socket\n"));
  EXPECT_THAT(environment, HasSubstr("\nEMPTY=\n"));
}

}  // namespace
}  // namespace hilbert_ring::server
