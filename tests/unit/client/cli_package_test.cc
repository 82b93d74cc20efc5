// Commands that the command line runs through the Python package.
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/unit/client/run_cli.h"
#include "tests/unit/client/test_files.h"

namespace hilbert_ring::client {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A script in place of an interpreter. It can import the package. The package's program prints its
// arguments and ends with 7.
std::string Interpreter(const TestFiles& files, const std::string& name = "python") {
  std::string path =
      files.Write(name,
                  "#!/bin/sh\ncase \"$1 $2\" in '-c '*run_module*) shift 2 ;; *) exit 0 ;; esac\n"
                  "for word; do printf '[%s]' \"$word\"; done\n"
                  "echo; echo \"server=$HILBERT_RING_SERVER tls=$HILBERT_RING_TLS "
                  "token=$HILBERT_RING_TOKEN_FILE\"\n"
                  "echo \"programs=$HILBERT_RING_BIN_DIR path=$PYTHONPATH\"\nexit 7\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

TEST(CliPackage, WhatStandsBehindTheCommandReachesThePackageAsItIs) {
  const TestFiles files;
  const std::string python = absl::StrCat("HILBERT_RING_PYTHON=", Interpreter(files), " $CLI ");
  const CliResult plain = RunShell(
      absl::StrCat("unset HILBERT_RING_SERVER; ", python,
                   "bench sweep --rounds=1 --out 'a folder' --json --help -- '' --server h:1"));
  EXPECT_EQ(plain.code, 7);
  EXPECT_THAT(plain.out, AllOf(StartsWith("[bench][sweep][--rounds=1][--out][a folder]"
                                          "[--json][--help][--][][--server][h:1]\n"),
                               HasSubstr("server= tls=")));
  const CliResult draw = RunShell(absl::StrCat(python, "--json --server bench draw"));
  EXPECT_THAT(draw.out, AllOf(StartsWith("[draw][--json]\n"), HasSubstr("server=bench ")));
  EXPECT_THAT(RunShell(python + "slide s.h5 --tiles t.npy").out,
              StartsWith("[slide][s.h5][--tiles][t.npy]\n"));
}

TEST(CliPackage, OptionsBeforeTheCommandReachThePackageAsVariables) {
  const TestFiles files;
  const CliResult result =
      RunShell(absl::StrCat("HILBERT_RING_PYTHON=", Interpreter(files),
                            " $CLI --tls --server=ring:8001 --token-file mine bench load"));
  EXPECT_EQ(result.code, 7);
  EXPECT_THAT(result.out, HasSubstr("server=ring:8001 tls=true token=mine\n"));
}

TEST(CliPackage, ThePackageFindsTheProgramsAndTheProgramsThePackage) {
  const TestFiles files;
  const std::string build =
      std::filesystem::path(HILBERT_RING_CLI).parent_path().parent_path().string();
  const std::string python = absl::StrCat("HILBERT_RING_PYTHON=", Interpreter(files), " $CLI draw");
  EXPECT_THAT(RunShell(absl::StrCat("unset PYTHONPATH HILBERT_RING_BIN_DIR; ", python)).out,
              HasSubstr(absl::StrCat("programs=", build, "/bin path=", build, "/python\n")));
  for (const char* mine : {"/mine", "::/mine::"}) {  // an empty element: the current folder
    EXPECT_THAT(RunShell(absl::StrCat("export PYTHONPATH=", mine, " HILBERT_RING_BIN_DIR=/theirs; ",
                                      python))
                    .out,
                HasSubstr(absl::StrCat("programs=/theirs path=/mine:", build, "/python\n")));
  }
}

TEST(CliPackage, WhereItCannotBeImportedTheErrorSaysHowToInstallIt) {
  const TestFiles files;
  const std::string without = files.Write(
      "without", "#!/bin/sh\necho 'some lines' >&2\necho 'ImportError: no grpc' >&2\nexit 1\n");
  std::filesystem::permissions(without, std::filesystem::perms::owner_all);
  const CliResult result =
      RunShell(absl::StrCat("HILBERT_RING_PYTHON=", without, " $CLI bench sweep"));
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err,
              AllOf(StartsWith("hilbert-ring: FAILED_PRECONDITION: bench is a command of the "
                               "Python package hilbert_ring, which cannot be imported ("),
                    HasSubstr("/without: ImportError: no grpc)"), Not(HasSubstr("some lines")),
                    HasSubstr("pip install ./client/python"), HasSubstr("HILBERT_RING_PYTHON")));
}

}  // namespace
}  // namespace hilbert_ring::client
