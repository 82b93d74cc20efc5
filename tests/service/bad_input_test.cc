// What a client can do wrong: each gets its status and a message that names field, value and limit,
// the service goes on, and memory is back where it was.
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "gtest/gtest.h"
#include "hilbert_ring/v1/encoder.pb.h"
#include "tests/random/random_spec.h"
#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"
#include "tests/support/process_account.h"
#include "tests/support/sanitizer.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/raw_stream.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

JobSpec SmallSpec() { return PlainSpec({.dim = 8, .segment = 32}); }

class BadInput : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto cluster = Cluster::Start({.workers = 2, .arguments = {"--max-tokens=1000000"}});
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = cluster->release();
  }
  static void TearDownTestSuite() {
    ASSERT_NE(cluster_, nullptr);
    EXPECT_EQ(cluster_->Stop(), absl::OkStatus());
    delete cluster_;
    cluster_ = nullptr;
  }

  void SetUp() override {
    ASSERT_NE(cluster_, nullptr);
    stub_ = cluster_->Stub();
  }

  // Whatever a test did, the next job is right.
  void TearDown() override {
    const JobSpec spec = SmallSpec();
    const auto result = AttendRaw(*stub_, spec, RandomInputs(spec, 1), 10, 1);
    EXPECT_TRUE(result.ok()) << result.status();
  }

  absl::Status OpenOnly(const JobSpec& spec) {
    RawCall call(*stub_, std::chrono::seconds(20));
    call.Open(spec);
    call.WritesDone();
    return call.Finish();
  }

  // Opens the small job and sends the given chunks, then closes.
  absl::Status SendChunks(const std::vector<v1::Chunk>& chunks, const JobSpec& spec = SmallSpec()) {
    RawCall call(*stub_, std::chrono::seconds(20));
    call.Open(spec);
    if (!call.AwaitAdmitted()) return call.Finish();
    for (const v1::Chunk& chunk : chunks) {
      if (!call.Send(chunk)) return call.Finish();
    }
    call.WritesDone();
    return call.Finish();
  }

  std::vector<v1::Chunk> GoodChunks(const JobSpec& spec = SmallSpec()) {
    std::vector<v1::Chunk> chunks;
    for (const auto& [tensor, data] : EncodeTensors(spec, RandomInputs(spec, 2))) {
      chunks.push_back(MakeChunk(tensor, data, wire::TensorRowBytes(spec, tensor), 0, spec.tokens));
    }
    return chunks;
  }

  static Cluster* cluster_;
  std::unique_ptr<v1::AttentionService::Stub> stub_;
};

Cluster* BadInput::cluster_ = nullptr;

void ExpectStatus(const absl::Status& status, absl::StatusCode code, const std::string& field) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(field)) << status;
  EXPECT_FALSE(wire::ReasonOf(status).empty());
}

TEST_F(BadInput, SpecsNameTheirField) {
  struct Case {
    std::string field;
    absl::StatusCode code;
    std::function<void(JobSpec&)> spoil;
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  const std::vector<Case> cases = {
      {"tokens", invalid, [](JobSpec& s) { s.tokens = 0; }},
      {"tokens", invalid, [](JobSpec& s) { s.tokens = -5; }},
      {"tokens", absl::StatusCode::kOutOfRange, [](JobSpec& s) { s.tokens = 2'000'000; }},
      {"kv_heads", invalid, [](JobSpec& s) { s.kv_heads = 3; }},
      {"heads", invalid, [](JobSpec& s) { s.heads = 0; }},
      {"head_dim", invalid, [](JobSpec& s) { s.head_dim = 12; }},
      {"value_dim", invalid, [](JobSpec& s) { s.value_dim = -8; }},
      {"scale", invalid, [](JobSpec& s) { s.scale = NAN; }},
      {"scale", invalid, [](JobSpec& s) { s.scale = INFINITY; }},
      {"segment", invalid,
       [](JobSpec& s) {
         s.branches = {{-1, 1}};
       }},
      {"dilation", invalid,
       [](JobSpec& s) {
         s.branches = {{32, 0}};
       }},
      {"segment", invalid, [](JobSpec& s) { s.branches.clear(); }},
      {"sequence_lengths", invalid,
       [](JobSpec& s) {
         s.sequence_lengths = {60, 5};
       }},
      {"sequence_lengths", invalid,
       [](JobSpec& s) {
         s.sequence_lengths = {64, 0};
       }},
      {"window", invalid,
       [](JobSpec& s) {
         s.ordering = Ordering{.window = 16, .grid = {8, 8}};
       }},
      {"grid", invalid,
       [](JobSpec& s) {
         s.ordering = Ordering{.grid = {8, 9}};
       }},
  };
  for (const Case& bad : cases) {
    JobSpec spec = SmallSpec();
    bad.spoil(spec);
    ExpectStatus(OpenOnly(spec), bad.code, bad.field);
  }
}

TEST_F(BadInput, UnknownTypeIsRefused) {
  RawCall call(*stub_, std::chrono::seconds(20));
  v1::AttendRequest request;
  *request.mutable_open()->mutable_spec() = wire::EncodeJobSpec(SmallSpec());
  request.mutable_open()->mutable_spec()->set_dtype(static_cast<v1::DataType>(77));
  call.Write(request);
  ExpectStatus(call.Finish(), absl::StatusCode::kInvalidArgument, "dtype");
}

TEST_F(BadInput, FirstMessageMustBeOpen) {
  RawCall call(*stub_, std::chrono::seconds(20));
  call.Send(GoodChunks()[0]);
  ExpectStatus(call.Finish(), absl::StatusCode::kInvalidArgument, "Open");
}

TEST_F(BadInput, AMessageThatIsNone) {
  grpc::ClientContext context;
  const auto channel = cluster_->Channel();
  const auto stream =
      wire::OpenRawStream(*channel, "/hilbert_ring.v1.AttentionService/Attend", context);
  const grpc::Slice slice("no message at all");
  stream->Write(grpc::ByteBuffer(&slice, 1));
  grpc::ByteBuffer response;
  EXPECT_FALSE(stream->Read(&response));
  const absl::Status status = wire::FromGrpc(stream->Finish());
  ExpectStatus(status, absl::StatusCode::kInvalidArgument, "AttendRequest");
  EXPECT_EQ(wire::ReasonOf(status), "MALFORMED");
}

// Of every method with one message each way.
TEST_F(BadInput, ARequestThatIsNoMessage) {
  const auto channel = cluster_->Channel();
  const grpc::Slice slice("no message at all");
  int methods = 0;
  for (const auto* file :
       {v1::PlanRequest::descriptor()->file(), v1::GetModelRequest::descriptor()->file()}) {
    const auto* const service = file->service(0);
    for (int i = 0; i < service->method_count(); ++i) {
      const auto* const method = service->method(i);
      if (method->client_streaming()) continue;
      ++methods;
      const std::string name = absl::StrCat("/", service->full_name(), "/", method->name());
      grpc::ClientContext context;
      grpc::ByteBuffer response;
      const absl::Status status =
          wire::FromGrpc(grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
              channel.get(),
              grpc::internal::RpcMethod(name.c_str(), grpc::internal::RpcMethod::NORMAL_RPC),
              &context, grpc::ByteBuffer(&slice, 1), &response));
      ExpectStatus(status, absl::StatusCode::kInvalidArgument, method->input_type()->name());
      EXPECT_EQ(wire::ReasonOf(status), "MALFORMED") << name;
    }
  }
  EXPECT_EQ(methods, 8);
}

TEST_F(BadInput, MissingRows) {
  std::vector<v1::Chunk> chunks = GoodChunks();
  chunks.pop_back();
  ExpectStatus(SendChunks(chunks), absl::StatusCode::kInvalidArgument, "V");
}

TEST_F(BadInput, MissingPartOfATensor) {
  const JobSpec spec = SmallSpec();
  std::vector<v1::Chunk> chunks = GoodChunks();
  const auto tensors = EncodeTensors(spec, RandomInputs(spec, 2));
  chunks[0] = MakeChunk(v1::TENSOR_Q, tensors.at(v1::TENSOR_Q),
                        wire::TensorRowBytes(spec, v1::TENSOR_Q), 0, 40);
  ExpectStatus(SendChunks(chunks), absl::StatusCode::kInvalidArgument, "40");
}

TEST_F(BadInput, DuplicateAndOverlappingChunks) {
  std::vector<v1::Chunk> chunks = GoodChunks();
  chunks.insert(chunks.begin(), chunks.front());
  ExpectStatus(SendChunks(chunks), absl::StatusCode::kInvalidArgument, "Q");
}

TEST_F(BadInput, ChunkPastTheEnd) {
  std::vector<v1::Chunk> chunks = GoodChunks();
  chunks[1].set_first_row(1);
  ExpectStatus(SendChunks(chunks), absl::StatusCode::kOutOfRange, "64");
}

TEST_F(BadInput, NegativeAndHugeRows) {
  for (const int64_t first : {int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    std::vector<v1::Chunk> chunks = GoodChunks();
    chunks[1].set_first_row(first);
    const absl::Status status = SendChunks(chunks);
    EXPECT_TRUE(absl::IsOutOfRange(status) || absl::IsInvalidArgument(status)) << status;
  }
  for (const int64_t rows : {int64_t{0}, int64_t{-3}, std::numeric_limits<int64_t>::max()}) {
    std::vector<v1::Chunk> chunks = GoodChunks();
    chunks[1].set_rows(rows);
    const absl::Status status = SendChunks(chunks);
    EXPECT_TRUE(absl::IsOutOfRange(status) || absl::IsInvalidArgument(status)) << status;
  }
}

TEST_F(BadInput, MisshapenPayload) {
  std::vector<v1::Chunk> chunks = GoodChunks();
  chunks[1].mutable_payload()->pop_back();
  chunks[1].set_crc32c(wire::Crc32c(chunks[1].payload()));
  ExpectStatus(SendChunks(chunks), absl::StatusCode::kInvalidArgument, "payload");
}

TEST_F(BadInput, CorruptPayload) {
  std::vector<v1::Chunk> chunks = GoodChunks();
  (*chunks[1].mutable_payload())[7] ^= 1;
  const absl::Status status = SendChunks(chunks);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
}

TEST_F(BadInput, UnknownTensorAndOutputTensor) {
  for (const auto tensor : {static_cast<v1::Tensor>(42), v1::TENSOR_OUT, v1::TENSOR_COORDS}) {
    std::vector<v1::Chunk> chunks = GoodChunks();
    chunks[1].set_tensor(tensor);
    ExpectStatus(SendChunks(chunks), absl::StatusCode::kInvalidArgument, "tensor");
  }
}

TEST_F(BadInput, OversizeChunk) {
  JobSpec spec = SmallSpec();
  spec.tokens = 100'000;
  spec.heads = spec.kv_heads = 2;
  const EngineInputs inputs{.q = std::vector<float>(100'000 * 16, 1.0f)};
  const std::string data(100'000 * 64, '\0');
  RawCall call(*stub_, std::chrono::seconds(20));
  call.Open(spec);
  ASSERT_TRUE(call.AwaitAdmitted());
  call.Send(MakeChunk(v1::TENSOR_Q, data, 64, 0, 100'000));
  const absl::Status status = call.Finish();
  // Beyond the message limit the transport refuses it; beyond the payload limit the service does.
  EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status) ||
              absl::IsOutOfRange(status))
      << status;
  RawCall near(*stub_, std::chrono::seconds(20));
  near.Open(spec);
  ASSERT_TRUE(near.AwaitAdmitted());
  near.Send(MakeChunk(v1::TENSOR_Q, data, 64, 0, (wire::kMaxPayloadBytes + 6400) / 64));
  ExpectStatus(near.Finish(), absl::StatusCode::kInvalidArgument, "payload");
}

TEST_F(BadInput, CoordinatesMustComeFirstAndWhole) {
  JobSpec spec = SmallSpec();
  spec.ordering = Ordering{.coordinate_axes = 2};
  std::mt19937_64 random(1);
  std::vector<v1::Chunk> chunks = GoodChunks(spec);
  ASSERT_EQ(chunks.front().tensor(), v1::TENSOR_COORDS);
  ASSERT_TRUE(SendChunks(chunks, spec).ok());
  std::vector<v1::Chunk> late = chunks;
  std::swap(late[0], late[1]);
  ExpectStatus(SendChunks(late, spec), absl::StatusCode::kInvalidArgument, "COORDS");
  std::vector<v1::Chunk> none(chunks.begin() + 1, chunks.end());
  ExpectStatus(SendChunks(none, spec), absl::StatusCode::kInvalidArgument, "COORDS");
}

TEST_F(BadInput, CoordinatesOutOfRangeNameRowAndLimit) {
  JobSpec spec = SmallSpec();
  spec.ordering = Ordering{.coordinate_axes = 3};
  std::vector<v1::Chunk> chunks = GoodChunks(spec);
  const uint32_t big = 1u << 21;
  std::memcpy(chunks[0].mutable_payload()->data() + 12 * 5, &big, sizeof(big));
  chunks[0].set_crc32c(wire::Crc32c(chunks[0].payload()));
  const absl::Status status = SendChunks(chunks, spec);
  EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("5"), HasSubstr("2097152")));
}

TEST_F(BadInput, ManyBadJobsLeaveNoMemoryBehind) {
  JobSpec spec = SmallSpec();
  spec.tokens = 200'000;  // 51 MB of shards
  const auto spoil = [&] {
    RawCall call(*stub_, std::chrono::seconds(20));
    call.Open(spec);
    ASSERT_TRUE(call.AwaitAdmitted());
    const std::string data(10'000 * 64, 'x');
    for (int64_t first = 0; first < 100'000; first += 10'000) {
      v1::Chunk chunk = MakeChunk(v1::TENSOR_K, data, 64, 0, 10'000);
      chunk.set_first_row(first);
      call.Send(chunk);
    }
    v1::Chunk corrupt = MakeChunk(v1::TENSOR_Q, data, 64, 0, 10);
    corrupt.set_crc32c(0);
    call.Send(corrupt);
    EXPECT_TRUE(absl::IsDataLoss(call.Finish()));
  };
  const auto resident = [&] {
    int64_t bytes = MemoryOf(cluster_->coordinator()).resident();
    for (const pid_t pid : cluster_->Workers()) bytes += MemoryOf(pid).resident();
    return bytes;
  };
  for (int i = 0; i < 3; ++i) spoil();
  const int64_t before = resident();
  for (int i = 0; i < 12; ++i) spoil();
  if (kResidentBytesAreTheSanitizers) {
    GTEST_SKIP() << "their errors are right, but resident bytes are the sanitizer's";
  }
  EXPECT_LT(resident(), before + (24 << 20));
}

TEST_F(BadInput, PlanOfABadSpecNamesTheField) {
  grpc::ClientContext context;
  v1::PlanRequest request;
  JobSpec spec = SmallSpec();
  spec.head_dim = 7;
  *request.mutable_spec() = wire::EncodeJobSpec(spec);
  v1::PlanResponse response;
  ExpectStatus(wire::FromGrpc(stub_->Plan(&context, request, &response)),
               absl::StatusCode::kInvalidArgument, "head_dim");
}

}  // namespace
}  // namespace hilbert_ring::testing
