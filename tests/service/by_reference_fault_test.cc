#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/engine/run_engine.h"
#include "tests/service/by_reference.h"
#include "tests/support/await.h"
#include "tests/support/cluster.h"
#include "tests/support/own_mounts.h"
#include "tests/support/plain_spec.h"
#include "tests/support/test_depth.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using std::chrono::seconds;

constexpr char kOld[] = "the file before";

// Seconds of compute; each final stretch is written at once.
JobSpec LongSpec() {
  const auto tokens = AtDepth<int64_t>(12'000, 12'000, 32'000);
  return PlainSpec({.tokens = tokens, .heads = 8, .dim = 64, .segment = tokens / 4});
}

class ByReferenceFault : public ByReferenceTest {
 protected:
  std::string Path(v1::Tensor tensor) const { return folder_ / ("root/" + NameOf(tensor)); }

  void KeepOld() { std::ofstream(Path(v1::TENSOR_OUT)) << kOld; }

  void ExpectOld() {
    EXPECT_TRUE(Await([this] { return Stray().empty(); }));
    EXPECT_EQ(FileText(Path(v1::TENSOR_OUT)), kOld);
    EXPECT_FALSE(std::filesystem::exists(Path(v1::TENSOR_LSE)));
  }

  // The memory of jobs is free, and the service runs another job.
  void ExpectNextJob() {
    const JobSpec spec = PlainSpec();
    const EngineInputs inputs = RandomInputs(spec, 9);
    const auto report = Run(Write(spec, inputs));
    ASSERT_TRUE(report.ok()) << report.status();
    ExpectAsSent(spec, inputs);
    EXPECT_TRUE(Await([this] {
      const auto described = cluster_->Describe();
      if (!described.ok()) return false;
      for (const v1::ClusterWorker& worker : described->workers()) {
        if (worker.memory_used_bytes() != 0) return false;
      }
      return true;
    }));
  }

  static bool AwaitComputed(RawCall& call, double fraction) {
    v1::AttendResponse response;
    while (call.Read(&response)) {
      if (response.progress().fraction() >= fraction) return true;
    }
    return false;
  }
};

class SmallDisk {
 public:
  static absl::Status Mount(const std::string& path, int64_t bytes) {
    if (absl::Status own = EnterOwnMounts(); !own.ok()) return own;
    std::filesystem::create_directories(path);
    const std::string size = absl::StrCat("size=", bytes);
    if (mount("none", path.c_str(), "tmpfs", 0, size.c_str()) == 0) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("mount: ", std::strerror(errno)));
  }

  explicit SmallDisk(std::string path) : path_(std::move(path)) {}
  ~SmallDisk() { umount2(path_.c_str(), MNT_DETACH); }

  void Fill(int64_t bytes) const {
    struct statvfs system = {};
    ASSERT_EQ(statvfs(path_.c_str(), &system), 0);
    const auto free = static_cast<int64_t>(system.f_bavail * system.f_frsize);
    ASSERT_GT(free, bytes);
    const int file = open(Filler().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    EXPECT_EQ(posix_fallocate(file, 0, free - bytes), 0);
    close(file);
  }
  void Free() const { std::filesystem::remove(Filler()); }

 private:
  std::string Filler() const { return path_ + "/filler"; }
  const std::string path_;
};

// There is room for each output but not for both: the error comes while they are written.
TEST_F(ByReferenceFault, ADiskThatIsFullWhileOutputsAreWritten) {
  const absl::Status mounted = SmallDisk::Mount(folder_ / "root", 64 << 20);
  if (!mounted.ok()) GTEST_SKIP() << "a file system of one's own needs rights: " << mounted;
  const SmallDisk disk(folder_ / "root");
  Start();
  JobSpec spec = PlainSpec({.tokens = 20'000, .heads = 8, .dim = 16, .segment = 1'000});
  spec.value_dim = 8;
  const EngineInputs inputs = RandomInputs(spec, 1);
  const v1::Open open = Write(spec, inputs);
  KeepOld();
  const int64_t lse = spec.tokens * spec.heads * 4, out = 8 * lse;
  disk.Fill(out + lse / 2);
  EXPECT_EQ(ReasonOf(open), "FILE_NO_SPACE");
  ExpectOld();
  disk.Free();
  const auto report = Run(open);
  ASSERT_TRUE(report.ok()) << report.status();
  ExpectAsSent(spec, inputs);
  // Too little room for one output is found before the job runs.
  std::filesystem::remove(Path(v1::TENSOR_LSE));
  KeepOld();
  disk.Fill(out / 2);
  EXPECT_EQ(ReasonOf(open), "FILE_NO_SPACE");
  ExpectOld();
  disk.Free();
  ExpectNextJob();
}

TEST_F(ByReferenceFault, AnOutputBeyondTheProcessesLimit) {
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit = {.rlim_cur = 8 << 20, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  Start({"--share-memory=false"});
  setrlimit(RLIMIT_FSIZE, &before);
  const JobSpec spec = PlainSpec({.tokens = 20'000, .heads = 8, .dim = 16, .segment = 1'000});
  const v1::Open open = Write(spec, RandomInputs(spec, 1));
  KeepOld();
  EXPECT_EQ(ReasonOf(open), "FILE_NO_SPACE");
  ExpectOld();
  std::filesystem::remove(Path(v1::TENSOR_OUT));
  ExpectNextJob();
}

TEST_F(ByReferenceFault, ARootThatVanishesIsUsedOnceItIsBack) {
  Start();
  const JobSpec spec = PlainSpec();
  const v1::Open open = Write(spec, RandomInputs(spec, 1));
  std::filesystem::rename(folder_ / "root", folder_ / "moved");
  EXPECT_EQ(ReasonOf(open), "DATA_ROOT_GONE");
  std::filesystem::rename(folder_ / "moved", folder_ / "root");
  EXPECT_TRUE(Await([&] {
    const absl::Status status = Run(open).status();
    EXPECT_TRUE(status.ok() || wire::ReasonOf(status) == "DATA_ROOT_GONE") << status;
    return status.ok();
  }));
}

// The changed file is an input, then an unfinished output.
TEST_F(ByReferenceFault, FilesThatChangeDuringAJob) {
  Start();
  const JobSpec spec = LongSpec();
  const EngineInputs inputs = RandomInputs(spec, 1);
  const std::function<void()> changes[] = {
      [&] { std::fstream(Path(v1::TENSOR_V)) << "?"; },
      [&] {
        for (const std::string& name : Stray()) {
          std::filesystem::remove(folder_ / ("root/in/" + name));
        }
      }};
  for (const auto& change : changes) {
    const auto call = Call(Write(spec, inputs));
    KeepOld();
    ASSERT_TRUE(AwaitComputed(*call, 0.2));
    change();
    EXPECT_EQ(wire::ReasonOf(call->Finish()), "FILE_CHANGED");
    ExpectOld();
  }
  ExpectNextJob();
}

}  // namespace
}  // namespace hilbert_ring::testing
