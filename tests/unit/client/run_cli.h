// Runs the command line as a process.
#pragma once

#include <string>

namespace hilbert_ring::client {

struct CliResult {
  int code = -1;  // 128 plus the signal's number if a signal ended it
  std::string out;
  std::string err;
};

CliResult RunCli(const std::string& arguments);

// command: a shell's command line; "$CLI" is the program.
CliResult RunShell(const std::string& command);

// Returns " --q Q --k K --v V" of a golden case.
std::string GoldenTensors(const std::string& golden_case);

// Adds " --spec SPEC", and " --coords COORDS" if the case has them.
std::string GoldenInputs(const std::string& golden_case);

}  // namespace hilbert_ring::client
