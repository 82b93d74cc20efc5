// Jobs whose tensors lie in files: the workers read and write them, and the service carries none.
#include "client/cpp/by_reference.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/service.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/run_engine.h"
#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"
#include "tests/support/test_folder.h"
#include "wire/codec.h"
#include "wire/npy_header.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A value of a counter or gauge, summed over its series.
double Metric(const Cluster& cluster, const std::string& name) {
  const auto page = cluster.HttpGet("/metrics");
  EXPECT_TRUE(page.ok()) << page.status();
  double sum = 0;
  std::istringstream lines(page.ok() ? *page : "");
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name + " ") && !line.starts_with(name + "{")) continue;
    double value = 0;
    EXPECT_TRUE(absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &value)) << line;
    sum += value;
  }
  return sum;
}

class ByReferenceTest : public ::testing::TestWithParam<WorkerPlace> {
 protected:
  // The root lies in `folder_`, the workers see it too.
  void Start(std::vector<std::string> arguments = {}, int workers = 2) {
    std::filesystem::create_directories(folder_ / "root/in");
    arguments.push_back("--data-root=" + (folder_ / "root"));
    auto cluster = Cluster::Start({.workers = workers,
                                   .place = GetParam(),
                                   .arguments = std::move(arguments),
                                   .worker_arguments = {"--data-root=" + (folder_ / "root")}});
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    // Workers look for the mark when they are told of it.
    const auto end = std::chrono::steady_clock::now() + seconds(30);
    while (std::chrono::steady_clock::now() < end) {
      const auto root = client::RequestDataRoot(cluster_->Channel());
      if (root.ok() && root->workers() == workers) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    FAIL() << "the workers do not see the data root";
  }

  static std::vector<int64_t> ShapeOf(const JobSpec& spec, v1::Tensor tensor) {
    switch (tensor) {
      case v1::TENSOR_COORDS:
        return {spec.tokens, spec.ordering->coordinate_axes};
      case v1::TENSOR_Q:
        return {spec.tokens, spec.heads, spec.head_dim};
      case v1::TENSOR_K:
        return {spec.tokens, spec.kv_heads, spec.head_dim};
      case v1::TENSOR_V:
        return {spec.tokens, spec.kv_heads, spec.value_dim};
      case v1::TENSOR_OUT:
        return {spec.tokens, spec.heads, spec.value_dim};
      default:
        return {spec.tokens, spec.heads};
    }
  }

  static wire::NpyType TypeOf(const JobSpec& spec, v1::Tensor tensor) {
    if (tensor == v1::TENSOR_COORDS) return wire::NpyType::kUInt32;
    if (tensor == v1::TENSOR_LSE || spec.dtype == DataType::kFloat32) {
      return wire::NpyType::kFloat32;
    }
    return spec.dtype == DataType::kFloat16 ? wire::NpyType::kFloat16 : wire::NpyType::kRaw16;
  }

  static std::string NameOf(v1::Tensor tensor) {
    return absl::StrCat("in/", wire::TensorName(tensor), ".npy");
  }

  // Writes the inputs, and names all files.
  v1::Open Write(const JobSpec& spec, const EngineInputs& inputs) {
    v1::Open open;
    *open.mutable_spec() = wire::EncodeJobSpec(spec);
    open.set_want_lse(true);
    for (const auto& [tensor, bytes] : EncodeTensors(spec, inputs)) {
      std::ofstream(folder_ / ("root/" + NameOf(tensor)), std::ios::binary)
          << wire::FormatNpyHeader(TypeOf(spec, tensor), ShapeOf(spec, tensor)) << bytes;
      Name(open, tensor);
    }
    Name(open, v1::TENSOR_OUT);
    Name(open, v1::TENSOR_LSE);
    return open;
  }

  static void Name(v1::Open& open, v1::Tensor tensor) {
    v1::TensorFile& file = *open.add_files();
    file.set_tensor(tensor);
    file.set_path(NameOf(tensor));
  }

  static v1::TensorFile& FileOf(v1::Open& open, v1::Tensor tensor) {
    for (v1::TensorFile& file : *open.mutable_files()) {
      if (file.tensor() == tensor) return file;
    }
    return *open.add_files();
  }

  absl::StatusOr<v1::Report> Run(const v1::Open& open) {
    const auto stub = cluster_->Stub();
    RawCall call(*stub, seconds(120));
    v1::AttendRequest request;
    *request.mutable_open() = open;
    call.Write(request);
    call.WritesDone();
    v1::AttendResponse response;
    v1::Report report;
    while (call.Read(&response)) {
      EXPECT_FALSE(response.has_output());
      if (response.has_report()) report = response.report();
    }
    absl::Status status = call.Finish();
    if (!status.ok()) return status;
    return report;
  }

  std::string ReasonOf(const v1::Open& open) { return wire::ReasonOf(Run(open).status()); }

  std::string Data(v1::Tensor tensor) {
    const std::string file = TextOf(folder_ / ("root/" + NameOf(tensor)));
    const auto header = wire::ParseNpyHeader(file);
    EXPECT_TRUE(header.ok()) << header.status();
    return header.ok() ? file.substr(static_cast<size_t>(header->data_offset)) : "";
  }

  // Names of files that the service made and did not remove, but for its mark.
  std::vector<std::string> Stray() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "root")) {
      const std::string name = entry.path().filename();
      if (name.starts_with(".hilbert-ring-") && !name.ends_with(".root")) names.push_back(name);
    }
    return names;
  }

  // The same rows as chunks.
  void ExpectAsSent(const JobSpec& spec, const EngineInputs& inputs) {
    const auto sent = AttendRaw(*cluster_->Stub(), spec, inputs, 37, 5);
    ASSERT_TRUE(sent.ok()) << sent.status();
    const std::string out = Data(v1::TENSOR_OUT), lse = Data(v1::TENSOR_LSE);
    JobSpec of_lse = spec;
    of_lse.dtype = DataType::kFloat32;
    const auto bytes = EncodeTensors(spec, {.q = sent->result.out});
    std::string expected;
    for (const auto& [tensor, text] : bytes) {
      if (tensor == v1::TENSOR_Q) expected = text;
    }
    EXPECT_EQ(out == expected, true) << "OUT";
    ASSERT_EQ(lse.size(), sent->result.lse.size() * sizeof(float));
    EXPECT_EQ(std::memcmp(lse.data(), sent->result.lse.data(), lse.size()), 0) << "LSE";
  }

  TestFolder folder_;
  std::unique_ptr<Cluster> cluster_;
};

INSTANTIATE_TEST_SUITE_P(Places, ByReferenceTest,
                         ::testing::Values(WorkerPlace::kLocal, WorkerPlace::kRemote,
                                           WorkerPlace::kUnshared),
                         [](const auto& info) { return PlaceName(info.param); });

class ByReferenceHere : public ByReferenceTest {};
INSTANTIATE_TEST_SUITE_P(Places, ByReferenceHere, ::testing::Values(WorkerPlace::kLocal),
                         [](const auto& info) { return PlaceName(info.param); });

TEST_P(ByReferenceTest, OutputsAreThoseOfRowsThatAreSentAndNoRowPassesTheService) {
  Start();
  JobSpec spec = PlainSpec({.tokens = 3000, .heads = 4, .dim = 16, .segment = 512});
  for (const int round : {0, 1, 2, 3}) {
    spec.ordering.reset();
    spec.dtype = round == 1 ? DataType::kBFloat16 : DataType::kFloat32;
    if (round == 1) spec.ordering = Ordering{};  // the square's
    if (round == 2) spec.ordering = Ordering{.scope = OrderScope::kKv};
    if (round == 3) spec.ordering = Ordering{.coordinate_axes = 2};
    const EngineInputs inputs = RandomInputs(spec, 7 + static_cast<uint64_t>(round));
    const v1::Open open = Write(spec, inputs);
    const double received = Metric(*cluster_, "hilbert_ring_received_bytes_total");
    const double sent = Metric(*cluster_, "hilbert_ring_sent_bytes_total");
    const auto report = Run(open);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(Metric(*cluster_, "hilbert_ring_received_bytes_total"), received);
    EXPECT_EQ(Metric(*cluster_, "hilbert_ring_sent_bytes_total"), sent);
    int64_t read = 0, written = 0;
    for (const v1::WorkerReport& worker : report->workers()) {
      read += worker.file_bytes_read();
      written += worker.file_bytes_written();
    }
    const int64_t row = 64 * ElementBytes(spec.dtype);
    EXPECT_EQ(read, spec.tokens * 3 * row);
    EXPECT_EQ(written, spec.tokens * (row + 4 * 4));
    ExpectAsSent(spec, inputs);
    EXPECT_THAT(Stray(), IsEmpty());
  }
}

TEST_P(ByReferenceHere, EachHostilePathHasItsReason) {
  Start();
  const JobSpec spec = PlainSpec();
  const EngineInputs inputs = RandomInputs(spec, 1);
  const v1::Open right = Write(spec, inputs);
  std::filesystem::create_symlink("Q.npy", folder_ / "root/in/link.npy");
  std::filesystem::create_symlink("/etc", folder_ / "root/etc");
  ASSERT_EQ(mkfifo((folder_ / "root/in/fifo").c_str(), 0600), 0);
  const std::pair<const char*, const char*> inputs_wrong[] = {
      {"../outside", "FILE_PATH"},       {"/etc/passwd", "FILE_PATH"},
      {"etc/passwd", "FILE_SYMLINK"},    {"in/link.npy", "FILE_SYMLINK"},
      {"in", "FILE_DIRECTORY"},          {"in/fifo", "FILE_SPECIAL"},
      {"in/none.npy", "FILE_NOT_FOUND"}, {"", "FILE_PATH"},
      {"in/LSE.npy", "FILE_NOT_FOUND"}};
  for (const auto& [path, reason] : inputs_wrong) {
    v1::Open open = right;
    FileOf(open, v1::TENSOR_Q).set_path(path);
    EXPECT_EQ(ReasonOf(open), reason) << path;
  }
  for (const auto& [path, reason] : {std::pair("../outside.npy", "FILE_PATH"),
                                     {"etc/out.npy", "FILE_SYMLINK"},
                                     {"in/link.npy", "FILE_SYMLINK"},
                                     {"in", "FILE_DIRECTORY"},
                                     {"in/fifo", "FILE_SPECIAL"},
                                     {"none/out.npy", "FILE_NOT_FOUND"},
                                     {"in/Q.npy", "INVALID_OPEN"}}) {
    v1::Open open = right;
    FileOf(open, v1::TENSOR_OUT).set_path(path);
    EXPECT_EQ(ReasonOf(open), reason) << path;
  }
  v1::Open twice = right;
  FileOf(twice, v1::TENSOR_LSE).set_path(NameOf(v1::TENSOR_OUT));
  EXPECT_EQ(ReasonOf(twice), "INVALID_OPEN");
  v1::Open missing = right;
  missing.mutable_files()->DeleteSubrange(0, 1);
  EXPECT_EQ(ReasonOf(missing), "INVALID_OPEN");
  EXPECT_TRUE(Run(right).ok());
  EXPECT_THAT(Stray(), IsEmpty());
}

TEST_P(ByReferenceHere, AFileThatIsNotTheTensorIsRefusedBeforeTheJobRuns) {
  Start();
  const JobSpec spec = PlainSpec();
  const v1::Open open = Write(spec, RandomInputs(spec, 1));
  const std::string path = folder_ / "root/in/Q.npy";
  const std::string whole = TextOf(path);
  const auto refused_with = [&](const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
    const auto report = Run(open);
    EXPECT_EQ(wire::ReasonOf(report.status()), "FILE_MISSHAPEN");
    return std::string(report.status().message());
  };
  EXPECT_THAT(refused_with(whole.substr(0, whole.size() - 1)), HasSubstr("rows take"));
  EXPECT_THAT(refused_with("no array"), HasSubstr("not a .npy file"));
  EXPECT_THAT(refused_with(wire::FormatNpyHeader(wire::NpyType::kFloat32, {{64, 2, 8}})),
              HasSubstr("(64, 2, 16)"));
  EXPECT_THAT(refused_with(wire::FormatNpyHeader(wire::NpyType::kFloat16, {{64, 2, 16}})),
              HasSubstr("float16"));
}

TEST_P(ByReferenceHere, RawFilesAreReadFromTheirOffset) {
  Start();
  const JobSpec spec = PlainSpec();
  const EngineInputs inputs = RandomInputs(spec, 3);
  v1::Open open = Write(spec, inputs);
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_OUT}) {
    v1::RawFile& raw = *FileOf(open, tensor).mutable_raw();
    raw.set_dtype(v1::DATA_TYPE_FLOAT32);
    for (const int64_t axis : ShapeOf(spec, tensor)) raw.add_shape(axis);
  }
  const std::string q = Data(v1::TENSOR_Q);
  std::ofstream(folder_ / "root/in/Q.npy", std::ios::binary) << "before " << q;
  FileOf(open, v1::TENSOR_Q).mutable_raw()->set_offset(7);
  const auto report = Run(open);
  ASSERT_TRUE(report.ok()) << report.status();
  const std::string out = TextOf(folder_ / "root/in/OUT.npy");
  EXPECT_EQ(out.size(), q.size());
  std::ofstream(folder_ / "root/in/OUT.npy", std::ios::binary)
      << wire::FormatNpyHeader(wire::NpyType::kFloat32, ShapeOf(spec, v1::TENSOR_OUT)) << out;
  ExpectAsSent(spec, inputs);
}

TEST_P(ByReferenceHere, RowsAreCheckedWhereTheyWereWritten) {
  Start({"--check-rows=16"});
  const JobSpec spec = PlainSpec({.tokens = 200});
  EngineInputs inputs = RandomInputs(spec, 3);
  auto report = Run(Write(spec, inputs));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->rows_checked(), 16);
  EXPECT_EQ(report->rows_not_finite(), 0);
  inputs.v[40] = std::nanf("");
  report = Run(Write(spec, inputs));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->rows_not_finite(), 200);
  EXPECT_EQ(report->first_row_not_finite(), 0);
}

TEST_P(ByReferenceHere, ARootThatVanishesIsNamed) {
  Start();
  const JobSpec spec = PlainSpec();
  const v1::Open open = Write(spec, RandomInputs(spec, 1));
  std::filesystem::rename(folder_ / "root", folder_ / "moved");
  EXPECT_EQ(ReasonOf(open), "DATA_ROOT_GONE");
  std::filesystem::create_directory(folder_ / "root");
  EXPECT_EQ(ReasonOf(open), "DATA_ROOT_GONE");
  std::filesystem::remove(folder_ / "root");
  std::filesystem::rename(folder_ / "moved", folder_ / "root");
  // The workers look again, too.
  absl::Status status;
  for (int i = 0; i < 600 && !(status = Run(open).status()).ok(); ++i) {
    EXPECT_EQ(wire::ReasonOf(status), "DATA_ROOT_NOT_ON_WORKERS") << status;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(ByReferenceHere, AnInputThatChangesDuringTheJobIsAnError) {
  Start();
  const JobSpec spec = PlainSpec({.tokens = 20'000, .heads = 8, .dim = 64, .segment = 10'000});
  const v1::Open open = Write(spec, RandomInputs(spec, 1));
  const auto stub = cluster_->Stub();
  RawCall call(*stub, seconds(120));
  v1::AttendRequest request;
  *request.mutable_open() = open;
  call.Write(request);
  ASSERT_TRUE(call.AwaitAdmitted());
  std::fstream(folder_ / "root/in/V.npy") << "?";
  EXPECT_EQ(wire::ReasonOf(call.Finish()), "FILE_CHANGED");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "root/in/OUT.npy"));
  EXPECT_THAT(Stray(), IsEmpty());
}

TEST_P(ByReferenceHere, AJobThatIsGivenUpLeavesNothing) {
  Start();
  const JobSpec spec = PlainSpec({.tokens = 30'000, .heads = 8, .dim = 64, .segment = 15'000});
  const v1::Open open = Write(spec, RandomInputs(spec, 1));
  const auto stub = cluster_->Stub();
  {
    RawCall call(*stub, seconds(120));
    v1::AttendRequest request;
    *request.mutable_open() = open;
    call.Write(request);
    ASSERT_TRUE(call.AwaitAdmitted());
    EXPECT_EQ(Stray().size(), 2);
  }  // the client is gone
  for (int i = 0; i < 3000 && !Stray().empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_THAT(Stray(), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(folder_ / "root/in/OUT.npy"));
}

TEST_P(ByReferenceHere, TheClientNamesFilesThatBothSee) {
  Start();
  const JobSpec spec = PlainSpec();
  const EngineInputs inputs = RandomInputs(spec, 4);
  Write(spec, inputs);
  const std::string in = folder_ / "root/in/";
  std::filesystem::create_symlink(in + "Q.npy", folder_ / "q.npy");  // the client follows it
  std::vector<client::TensorPath> paths = {{v1::TENSOR_Q, folder_ / "q.npy"},
                                           {v1::TENSOR_K, in + "../in/K.npy"},
                                           {v1::TENSOR_V, in + "V.npy"},
                                           {v1::TENSOR_OUT, in + "OUT.npy"},
                                           {v1::TENSOR_LSE, in + "LSE.npy"}};
  const auto files = client::NameFiles(cluster_->Channel(), paths);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->front().path(), "in/Q.npy");
  const auto report = client::AttendInFiles(cluster_->address(), spec, *files);
  ASSERT_TRUE(report.ok()) << report.status();
  ExpectAsSent(spec, inputs);
  paths[3].path = folder_ / "OUT.npy";
  auto refused = client::NameFiles(cluster_->Channel(), paths).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("OUT.npy: does not lie beneath"));
  refused = client::NameFiles(cluster_->Channel(), paths, {.path = folder_.path()}).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("is not the service's data root"));
}

TEST_P(ByReferenceHere, AServiceWithoutARootTakesNoFiles) {
  auto cluster = Cluster::Start({.workers = 1});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  cluster_ = *std::move(cluster);
  std::filesystem::create_directories(folder_ / "root/in");
  const JobSpec spec = PlainSpec();
  EXPECT_EQ(ReasonOf(Write(spec, RandomInputs(spec, 1))), "NO_DATA_ROOT");
  EXPECT_EQ(wire::ReasonOf(client::RequestDataRoot(cluster_->Channel()).status()), "NO_DATA_ROOT");
}

class ByReferenceBeside : public ByReferenceTest {};
INSTANTIATE_TEST_SUITE_P(Places, ByReferenceBeside, ::testing::Values(WorkerPlace::kBeside),
                         [](const auto& info) { return PlaceName(info.param); });

TEST_P(ByReferenceBeside, AWorkerThatIsKilledCostsTheJobNothingButTime) {
  Start();
  const JobSpec spec = PlainSpec({.tokens = 20'000, .heads = 8, .dim = 64, .segment = 10'000});
  const EngineInputs inputs = RandomInputs(spec, 1);
  const v1::Open open = Write(spec, inputs);
  const auto stub = cluster_->Stub();
  RawCall call(*stub, seconds(240));
  v1::AttendRequest request;
  *request.mutable_open() = open;
  call.Write(request);
  ASSERT_TRUE(call.AwaitAdmitted());
  kill(cluster_->Workers().front(), SIGKILL);
  ASSERT_TRUE(cluster_->StartEnded().ok());
  v1::AttendResponse response;
  v1::Report report;
  while (call.Read(&response)) {
    if (response.has_report()) report = response.report();
  }
  const absl::Status status = call.Finish();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(report.retries(), 1);
  EXPECT_THAT(Stray(), IsEmpty());
  ExpectAsSent(spec, inputs);
}

TEST_P(ByReferenceBeside, ACoordinatorThatIsKilledLeavesNothingAfterItsRestart) {
  Start();
  const JobSpec spec = PlainSpec({.tokens = 30'000, .heads = 8, .dim = 64, .segment = 15'000});
  const v1::Open open = Write(spec, RandomInputs(spec, 1));
  const auto stub = cluster_->Stub();
  RawCall call(*stub, seconds(120));
  v1::AttendRequest request;
  *request.mutable_open() = open;
  call.Write(request);
  ASSERT_TRUE(call.AwaitAdmitted());
  kill(cluster_->coordinator(), SIGKILL);
  EXPECT_FALSE(call.Finish().ok());
  EXPECT_EQ(Stray().size(), 2);
  ASSERT_TRUE(cluster_->RestartCoordinator().ok());
  ASSERT_TRUE(cluster_->Restore(seconds(60)).ok());
  EXPECT_THAT(Stray(), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(folder_ / "root/in/OUT.npy"));
}

}  // namespace
}  // namespace hilbert_ring::testing
