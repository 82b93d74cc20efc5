#include "server/files/data_root.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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

TEST_F(DataRootTest, EachReaderOfTheFolderReadsItsMark) {
  {
    const auto root = DataRoot::Open(folder_.path());
    ASSERT_TRUE(root.ok()) << root.status();
    EXPECT_EQ(ReadMark(folder_.path(), (*root)->mark_file()), (*root)->mark());
    EXPECT_EQ(ReadMark("/tmp", (*root)->mark_file()), "");
    EXPECT_EQ(ReadMark(folder_.path(), "../" + (*root)->mark_file()), "");
    const auto other = DataRoot::Open(folder_.path());  // another service's
    EXPECT_NE((*root)->mark(), (*other)->mark());
  }
  EXPECT_TRUE(Names().empty());
}

TEST_F(DataRootTest, ModelsLieElsewhere) {
  for (const char* name : {"data", "data/models", "models", "data-2"}) {
    std::filesystem::create_directory(folder_ / name);
  }
  std::filesystem::create_symlink("data", folder_ / "link");
  for (const char* models : {"models", "data-2", "none"}) {
    EXPECT_TRUE(CheckApart(folder_ / "data", folder_ / models).ok()) << models;
  }
  EXPECT_TRUE(CheckApart(folder_ / "data", "").ok());
  for (const auto& [data, models] :
       {std::pair("data", "data"), std::pair("data", "models/../data/"), std::pair("data", "link"),
        std::pair("link", "data/models"), std::pair("data/models", "link"),
        std::pair("data", "link/later"), std::pair("models/later", "models")}) {
    const absl::Status status = CheckApart(folder_ / data, folder_ / models);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("--data-root is " + folder_ / data + ", must lie outside of"))
        << models;
  }
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

// Jobs overlap all day, beside one long job.
TEST_F(DataRootTest, TheListHoldsUnfinishedOutputsAlone) {
  const auto root = DataRoot::Open(folder_.path());
  const std::string mark = folder_ / (*root)->mark_file();
  const std::string longest = *(*root)->NameUnfinished("in/longest.npy");
  std::string before = *(*root)->NameUnfinished("in/out.npy");
  for (int i = 0; i < 5'000; ++i) {
    const std::string next = *(*root)->NameUnfinished("in/out.npy");
    (*root)->Forget(before);
    before = next;
    const std::string text = testing::FileText(mark);
    ASSERT_LT(text.size(), 65u << 10) << i;
    ASSERT_THAT(text,
                ::testing::AllOf(::testing::StartsWith((*root)->mark() + "\n"),
                                 HasSubstr("\n" + longest + "\n"), HasSubstr("\n" + next + "\n")));
  }
}

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

TEST_F(DataRootTest, OutputsOfADeadCoordinatorAreRemoved) {
  std::filesystem::create_directory(folder_ / "in");
  std::ofstream(folder_ / "in/kept") << "a caller's";
  DieWithOutputs(folder_.path());
  EXPECT_EQ(Names().size(), 4);  // two outputs, a mark
  { ASSERT_TRUE(DataRoot::Open(folder_.path()).ok()); }
  EXPECT_THAT(Names(), ::testing::ElementsAre("kept"));
}

TEST_F(DataRootTest, OutputsOfALivingCoordinatorStay) {
  const auto living = DataRoot::Open(folder_.path());
  const auto reached = (*living)->Reach();
  auto output =
      OutputFile::Create(**living, reached->number(), {.path = "out.npy", .data_bytes = 10});
  ASSERT_TRUE(output.ok());
  ASSERT_TRUE(DataRoot::Open(folder_.path()).ok());
  EXPECT_TRUE(output->Commit().ok());
}

// Looks at each mark once, like another service that starts, and locks it for a moment.
void LookAtMarks(const std::string& folder, const std::stop_token& over) {
  std::set<std::string> seen;
  while (!over.stop_requested()) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (!seen.insert(entry.path()).second) continue;
      const Descriptor mark(open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
      if (mark.number() < 0 || flock(mark.number(), LOCK_EX | LOCK_NB) != 0) continue;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

TEST_F(DataRootTest, AMarkIsLockedThoughOthersLookAtIt) {
  for (int round = 0; round < 1'000; ++round) {
    std::jthread looks([this](const std::stop_token& over) { LookAtMarks(folder_.path(), over); });
    const auto root = DataRoot::Open(folder_.path());
    ASSERT_TRUE(root.ok()) << root.status();
    looks.request_stop();
    looks.join();
    const Descriptor mark(open((folder_ / (*root)->mark_file()).c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_NE(flock(mark.number(), LOCK_EX | LOCK_NB), 0) << round;
  }
}

class Unprivileged {
 public:
  Unprivileged() : was_(geteuid()) {
    if (was_ == 0) {
      EXPECT_EQ(seteuid(65534), 0);
    }
  }
  ~Unprivileged() { EXPECT_EQ(seteuid(was_), 0); }

 private:
  const uid_t was_;
};

TEST_F(DataRootTest, AnOutputThatCannotBeRemovedIsRemovedLater) {
  namespace fs = std::filesystem;
  const std::string in = folder_ / "in";
  fs::create_directory(in);
  fs::permissions(folder_.path(), fs::perms::all);
  fs::permissions(in, fs::perms::all);
  std::unique_ptr<DataRoot> root;
  std::optional<OutputFile> output;
  const auto start = [&] {
    const Unprivileged unprivileged;
    root = *DataRoot::Open(folder_.path());
  };
  const auto end = [&] {
    const Unprivileged unprivileged;
    output.reset();
    root.reset();
  };
  start();
  {
    const Unprivileged unprivileged;
    const Descriptor reached = *root->Reach();
    output.emplace(
        *OutputFile::Create(*root, reached.number(), {.path = "in/out.npy", .data_bytes = 10}));
  }
  fs::permissions(in, fs::perms(0555));
  end();
  EXPECT_EQ(Names().size(), 2) << "the output, and the mark that lists it";
  start();
  end();
  EXPECT_EQ(Names().size(), 2) << "it may not be removed yet";
  fs::permissions(in, fs::perms::all);
  start();
  end();
  EXPECT_THAT(Names(), ::testing::IsEmpty());
}

TEST_F(DataRootTest, AMarkRemovesNoFilesOfCallers) {
  std::ofstream(folder_ / "precious") << "a caller's";
  std::ofstream(folder_ / ".hilbert-ring-0123.root") << "word\nprecious\n../precious\n";
  ASSERT_TRUE(DataRoot::Open(folder_.path()).ok());
  EXPECT_THAT(Names(), ::testing::ElementsAre("precious"));
}

}  // namespace
}  // namespace hilbert_ring::server
