#include "server/files/data_root.h"

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/files/output_file.h"
#include "tests/support/test_folder.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;

class DataRootTest : public ::testing::Test {
 protected:
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
      if (entry.is_regular_file()) names.push_back(entry.path().filename());
    }
    return names;
  }

  testing::TestFolder folder_;
};

TEST_F(DataRootTest, WhoeverSeesItReadsItsMark) {
  {
    const auto root = DataRoot::Open(folder_.path());
    ASSERT_TRUE(root.ok()) << root.status();
    EXPECT_EQ(ReadMark(folder_.path(), (*root)->mark_file()), (*root)->mark());
    EXPECT_EQ(ReadMark("/tmp", (*root)->mark_file()), "");
    EXPECT_EQ(ReadMark(folder_.path(), "../" + (*root)->mark_file()), "");
    const auto other = DataRoot::Open(folder_.path());  // of another service
    EXPECT_NE((*root)->mark(), (*other)->mark());
  }
  EXPECT_TRUE(Names().empty());
}

TEST_F(DataRootTest, AFolderThatCannotBeUsedIsNamed) {
  const auto root = DataRoot::Open(folder_ / "none");
  EXPECT_THAT(std::string(root.status().message()), HasSubstr("--data-root"));
  EXPECT_THAT(std::string(root.status().message()), HasSubstr("none"));
}

TEST_F(DataRootTest, AnotherFolderInItsPlaceIsNotIt) {
  std::filesystem::create_directory(folder_ / "root");
  const auto root = DataRoot::Open(folder_ / "root");
  ASSERT_TRUE((*root)->Reach().ok());
  std::filesystem::rename(folder_ / "root", folder_ / "moved");
  EXPECT_EQ(wire::ReasonOf((*root)->Reach().status()), "DATA_ROOT_GONE");
  std::filesystem::create_directory(folder_ / "root");
  EXPECT_EQ(wire::ReasonOf((*root)->Reach().status()), "DATA_ROOT_GONE");
  std::filesystem::copy(folder_ / "moved", folder_ / "root");  // a copy of the mark is another file
  EXPECT_EQ(wire::ReasonOf((*root)->Reach().status()), "DATA_ROOT_GONE");
}

TEST_F(DataRootTest, ALongListIsCutWhenNoneOfItsOutputsIsLeft) {
  const auto root = DataRoot::Open(folder_.path());
  const std::string mark = folder_ / (*root)->mark_file();
  const std::string first_line = testing::FileText(mark);
  constexpr int kOutputs = 2000;
  for (int i = 0; i < kOutputs; ++i) ASSERT_TRUE((*root)->NameUnfinished("in/out.npy").ok());
  const std::string whole = testing::FileText(mark);
  EXPECT_GT(whole.size(), 64u << 10);
  for (int i = 1; i < kOutputs; ++i) (*root)->Forget();
  EXPECT_EQ(testing::FileText(mark), whole) << "one is still written";
  (*root)->Forget();
  EXPECT_EQ(testing::FileText(mark), first_line);
}

// As a process that is killed leaves them.
void DieWithOutputs(const std::string& folder) {
  const pid_t child = fork();
  if (child == 0) {
    auto root = DataRoot::Open(folder);
    auto reached = (*root)->Reach();
    auto first =
        OutputFile::Create(**root, reached->number(), {.path = "in/out.npy", .data_bytes = 10});
    auto second =
        OutputFile::Create(**root, reached->number(), {.path = "lse.npy", .data_bytes = 10});
    _exit(first.ok() && second.ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
}

TEST_F(DataRootTest, WhatADeadCoordinatorLeftIsRemoved) {
  std::filesystem::create_directory(folder_ / "in");
  std::ofstream(folder_ / "in/kept") << "a caller's";
  DieWithOutputs(folder_.path());
  EXPECT_EQ(Names().size(), 4);  // two outputs, a mark
  { ASSERT_TRUE(DataRoot::Open(folder_.path()).ok()); }
  EXPECT_THAT(Names(), ::testing::ElementsAre("kept"));
}

TEST_F(DataRootTest, WhatALivingCoordinatorWritesStays) {
  const auto living = DataRoot::Open(folder_.path());
  const auto reached = (*living)->Reach();
  auto output =
      OutputFile::Create(**living, reached->number(), {.path = "out.npy", .data_bytes = 10});
  ASSERT_TRUE(output.ok());
  ASSERT_TRUE(DataRoot::Open(folder_.path()).ok());
  EXPECT_TRUE(output->Commit().ok());
}

// What a mark lists is removed only where the name is that of an unfinished output.
TEST_F(DataRootTest, AMarkRemovesNoFilesOfCallers) {
  std::ofstream(folder_ / "precious") << "a caller's";
  std::ofstream(folder_ / ".hilbert-ring-0123.root") << "word\nprecious\n../precious\n";
  ASSERT_TRUE(DataRoot::Open(folder_.path()).ok());
  EXPECT_THAT(Names(), ::testing::ElementsAre("precious"));
}

}  // namespace
}  // namespace hilbert_ring::server
