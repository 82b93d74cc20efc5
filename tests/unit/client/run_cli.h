// The command line as a process.
#pragma once

#include <string>

namespace hilbert_ring::client {

struct CliResult {
  int code = -1;  // 128 and the signal's number where a signal ended it
  std::string out;
  std::string err;
};

// arguments: as a shell reads them.
CliResult RunCli(const std::string& arguments);

// A shell's command line; "$CLI" is the program.
CliResult RunShell(const std::string& command);

// " --q Q --k K --v V --spec SPEC", and " --coords COORDS" where it has them, of a golden case.
std::string GoldenInputs(const std::string& golden_case);

}  // namespace hilbert_ring::client
