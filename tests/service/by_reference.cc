#include "tests/service/by_reference.h"

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "tests/support/await.h"
#include "tests/support/metrics_page.h"
#include "wire/codec.h"
#include "wire/npy_header.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using std::chrono::seconds;

constexpr int kWorkers = 2;
constexpr seconds kLimit{240};  // of a job with a lost worker

wire::NpyType TypeOf(const JobSpec& spec, v1::Tensor tensor) {
  if (tensor == v1::TENSOR_COORDS) return wire::NpyType::kUInt32;
  if (tensor == v1::TENSOR_LSE || tensor == v1::TENSOR_BIAS_COORDS ||
      spec.dtype == DataType::kFloat32) {
    return wire::NpyType::kFloat32;
  }
  return spec.dtype == DataType::kFloat16 ? wire::NpyType::kFloat16 : wire::NpyType::kRaw16;
}

}  // namespace

RowBytes RowBytesOf(const Cluster& cluster) {
  const auto page = cluster.Metrics();
  EXPECT_TRUE(page.ok()) << page.status();
  const auto bytes = [&](absl::string_view series) {
    const auto value = ReadSeries(page.value_or(""), series);
    EXPECT_TRUE(value.ok()) << value.status();
    return value.value_or(-1);
  };
  return {.received = bytes("hilbert_ring_received_bytes_total"),
          .sent = bytes("hilbert_ring_sent_bytes_total")};
}

bool AwaitDataRoot(const Cluster& cluster, int workers) {
  const auto stub = cluster.Stub();
  return Await([&] {
    grpc::ClientContext context;
    v1::GetDataRootResponse root;
    return stub->GetDataRoot(&context, {}, &root).ok() && root.workers() == workers;
  });
}

void ByReferenceTest::Start(std::vector<std::string> arguments, WorkerPlace place) {
  std::filesystem::create_directories(folder_ / "root/in");
  arguments.push_back("--data-root=" + (folder_ / "root"));
  cluster_ = Cluster::Start({.workers = kWorkers,
                             .place = place,
                             .arguments = std::move(arguments),
                             .worker_arguments = {"--data-root=" + (folder_ / "root")}})
                 .value();
  ASSERT_TRUE(AwaitDataRoot(*cluster_, kWorkers));
}

std::vector<int64_t> ByReferenceTest::ShapeOf(const JobSpec& spec, v1::Tensor tensor) {
  switch (tensor) {
    case v1::TENSOR_COORDS:
      return {KeyTokens(spec), spec.ordering->coordinate_axes};
    case v1::TENSOR_BIAS_COORDS:
      return {KeyTokens(spec), BiasAxes(spec)};
    case v1::TENSOR_Q:
      return {spec.tokens, spec.heads, spec.head_dim};
    case v1::TENSOR_K:
      return {KeyTokens(spec), spec.kv_heads, spec.head_dim};
    case v1::TENSOR_V:
      return {KeyTokens(spec), spec.kv_heads, spec.value_dim};
    case v1::TENSOR_OUT:
      return {spec.tokens, spec.heads, spec.value_dim};
    default:
      return {spec.tokens, spec.heads};
  }
}

std::string ByReferenceTest::NameOf(v1::Tensor tensor) {
  return absl::StrCat("in/", wire::TensorName(tensor), ".npy");
}

v1::Open ByReferenceTest::Write(const JobSpec& spec, const EngineInputs& inputs) {
  v1::Open open;
  *open.mutable_spec() = wire::EncodeJobSpec(spec);
  open.set_want_lse(true);
  const auto name = [&](v1::Tensor tensor) {
    v1::TensorFile& file = *open.add_files();
    file.set_tensor(tensor);
    file.set_path(NameOf(tensor));
  };
  for (const auto& [tensor, bytes] : EncodeTensors(spec, inputs)) {
    std::ofstream(folder_ / ("root/" + NameOf(tensor)), std::ios::binary)
        << wire::FormatNpyHeader(TypeOf(spec, tensor), ShapeOf(spec, tensor)) << bytes;
    name(tensor);
  }
  name(v1::TENSOR_OUT);
  name(v1::TENSOR_LSE);
  return open;
}

v1::TensorFile& ByReferenceTest::FileOf(v1::Open& open, v1::Tensor tensor) {
  for (v1::TensorFile& file : *open.mutable_files()) {
    if (file.tensor() == tensor) return file;
  }
  return *open.add_files();
}

std::unique_ptr<RawCall> ByReferenceTest::Call(const v1::Open& open) {
  auto call = std::make_unique<RawCall>(*cluster_->Stub(), kLimit);
  v1::AttendRequest request;
  *request.mutable_open() = open;
  call->Write(request);
  return call;
}

absl::StatusOr<v1::Report> ByReferenceTest::Run(const v1::Open& open) {
  return Finish(*Call(open));
}

absl::StatusOr<v1::Report> ByReferenceTest::Finish(RawCall& call) {
  call.WritesDone();
  v1::AttendResponse response;
  v1::Report report;
  while (call.Read(&response)) {
    EXPECT_FALSE(response.has_output());
    if (response.has_report()) report = response.report();
  }
  RETURN_IF_ERROR(call.Finish());
  return report;
}

std::string ByReferenceTest::ReasonOf(const v1::Open& open) {
  return wire::ReasonOf(Run(open).status());
}

std::string ByReferenceTest::Data(v1::Tensor tensor) {
  const std::string file = FileText(folder_ / ("root/" + NameOf(tensor)));
  const auto header = wire::ParseNpyHeader(file);
  EXPECT_TRUE(header.ok()) << header.status();
  return header.ok() ? file.substr(static_cast<size_t>(header->data_offset)) : "";
}

std::vector<std::string> ByReferenceTest::Stray() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "root")) {
    const std::string name = entry.path().filename();
    if (name.starts_with(".hilbert-ring-") && !name.ends_with(".root")) names.push_back(name);
  }
  return names;
}

void ByReferenceTest::ExpectAsSent(const JobSpec& spec, const EngineInputs& inputs) {
  const auto sent = AttendRaw(*cluster_->Stub(), spec, inputs, 37, 5);
  ASSERT_TRUE(sent.ok()) << sent.status();
  // A row of the output has the shape of a query: encoded as a query it is in the job's type.
  const std::string expected = EncodeTensors(spec, {.q = sent->result.out}).at(v1::TENSOR_Q);
  const std::string out = Data(v1::TENSOR_OUT), lse = Data(v1::TENSOR_LSE);
  ASSERT_EQ(out.size(), expected.size());
  EXPECT_EQ(std::memcmp(out.data(), expected.data(), out.size()), 0) << "OUT";
  ASSERT_EQ(lse.size(), sent->result.lse.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(lse.data(), sent->result.lse.data(), lse.size()), 0) << "LSE";
}

}  // namespace hilbert_ring::testing
