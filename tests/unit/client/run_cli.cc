#include "tests/unit/client/run_cli.h"

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/unit/client/test_files.h"

namespace hilbert_ring::client {

CliResult RunCli(const std::string& arguments) {
  return RunShell(absl::StrCat(HILBERT_RING_CLI, " ", arguments));
}

CliResult RunShell(const std::string& command) {
  const TestFiles files;
  const std::string errors = files.Path("stderr");
  setenv("CLI", HILBERT_RING_CLI, 1);
  FILE* process = popen(absl::StrCat("{ ", command, "\n} 2>", errors).c_str(), "r");
  CliResult result;
  char part[4096];
  while (const size_t bytes = fread(part, 1, sizeof(part), process)) result.out.append(part, bytes);
  const int status = pclose(process);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.err = ReadFile(errors);
  return result;
}

std::string GoldenTensors(const std::string& golden_case) {
  std::string arguments;
  for (const char* name : {"q", "k", "v"}) {
    absl::StrAppend(&arguments, " --", name, " ",
                    GoldenPath(golden_case, absl::StrCat(name, ".npy")));
  }
  return arguments;
}

std::string GoldenInputs(const std::string& golden_case) {
  const std::string coords = GoldenPath(golden_case, "coords.npy");
  return absl::StrCat(GoldenTensors(golden_case), " --spec ", GoldenPath(golden_case, "case.json"),
                      std::filesystem::exists(coords) ? absl::StrCat(" --coords ", coords) : "");
}

}  // namespace hilbert_ring::client
