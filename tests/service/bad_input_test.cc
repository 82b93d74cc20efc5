// A wrong request ends with its own status, and a message that names the field. Later jobs succeed.
#include <functional>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "gtest/gtest.h"
#include "hilbert_ring/v1/encoder.pb.h"
#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"
#include "tests/support/process_account.h"
#include "tests/support/sanitizer.h"
#include "wire/codec.h"
#include "wire/raw_stream.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::HasSubstr;

JobSpec SmallSpec() { return PlainSpec({.dim = 8, .segment = 32}); }

class BadInput : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    cluster_ =
        Cluster::Start({.workers = 2, .arguments = {"--max-tokens=1000000"}}).value().release();
  }
  static void TearDownTestSuite() {
    EXPECT_EQ(cluster_->Stop(), absl::OkStatus());
    delete cluster_;
  }

  void TearDown() override {
    const JobSpec spec = SmallSpec();
    const auto result = AttendRaw(*stub_, spec, RandomInputs(spec, 1), 10, 1);
    EXPECT_TRUE(result.ok()) << result.status();
  }

  absl::Status OpenOnly(const v1::JobSpec& spec) {
    RawCall call(*stub_, std::chrono::seconds(20));
    v1::AttendRequest request;
    *request.mutable_open()->mutable_spec() = spec;
    call.Write(request);
    call.WritesDone();
    return call.Finish();
  }

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

  static std::vector<v1::Chunk> GoodChunks() {
    const JobSpec spec = SmallSpec();
    std::vector<v1::Chunk> chunks;
    for (const auto& [tensor, data] : EncodeTensors(spec, RandomInputs(spec, 2))) {
      chunks.push_back(MakeChunk(tensor, data, wire::TensorRowBytes(spec, tensor), 0, spec.tokens));
    }
    return chunks;
  }

  static inline Cluster* cluster_ = nullptr;
  const std::unique_ptr<v1::AttentionService::Stub> stub_ = cluster_->Stub();
};

void ExpectStatus(const absl::Status& status, absl::StatusCode code, const std::string& field) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(field)) << status;
  EXPECT_FALSE(wire::ReasonOf(status).empty());
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kRange = absl::StatusCode::kOutOfRange;

TEST_F(BadInput, SpecsNameTheirField) {
  const auto refused = [&](absl::StatusCode code, const std::string& field,
                           const std::function<void(v1::JobSpec&)>& spoil) {
    v1::JobSpec spec = wire::EncodeJobSpec(SmallSpec());
    spoil(spec);
    ExpectStatus(OpenOnly(spec), code, field);
  };
  refused(kInvalid, "tokens", [](auto& spec) { spec.set_tokens(-5); });
  refused(kRange, "tokens", [](auto& spec) { spec.set_tokens(2'000'000); });
  refused(kInvalid, "head_dim", [](auto& spec) { spec.set_head_dim(12); });
  refused(kInvalid, "segment", [](auto& spec) { spec.clear_segments(); });
  refused(kInvalid, "sequence_lengths", [](auto& spec) { spec.add_sequence_lengths(60); });
  refused(kInvalid, "dtype", [](auto& spec) { spec.set_dtype(static_cast<v1::DataType>(77)); });
}

TEST_F(BadInput, BytesThatAreNoMessage) {
  const auto channel = cluster_->Channel();
  const grpc::Slice slice("no message at all");
  {
    grpc::ClientContext context;
    const auto stream =
        wire::OpenRawStream(*channel, "/hilbert_ring.v1.AttentionService/Attend", context);
    stream->Write(grpc::ByteBuffer(&slice, 1));
    grpc::ByteBuffer response;
    EXPECT_FALSE(stream->Read(&response));
    EXPECT_EQ(wire::ReasonOf(wire::FromGrpc(stream->Finish())), "INVALID_OPEN");
  }
  for (const auto* file :
       {v1::PlanRequest::descriptor()->file(), v1::GetModelRequest::descriptor()->file()}) {
    const auto* const service = file->service(0);
    for (int i = 0; i < service->method_count(); ++i) {
      const auto* const method = service->method(i);
      if (method->client_streaming()) continue;
      const std::string name = absl::StrCat("/", service->full_name(), "/", method->name());
      grpc::ClientContext context;
      grpc::ByteBuffer response;
      const absl::Status status =
          wire::FromGrpc(grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
              channel.get(),
              grpc::internal::RpcMethod(name.c_str(), grpc::internal::RpcMethod::NORMAL_RPC),
              &context, grpc::ByteBuffer(&slice, 1), &response));
      ExpectStatus(status, kInvalid, method->input_type()->name());
      EXPECT_EQ(wire::ReasonOf(status), "INVALID_OPEN") << name;
    }
  }
}

TEST_F(BadInput, ChunksNameTheirMistake) {
  const auto refused = [&](absl::StatusCode code, const std::string& field,
                           const std::function<void(std::vector<v1::Chunk>&)>& spoil) {
    std::vector<v1::Chunk> chunks = GoodChunks();
    spoil(chunks);
    ExpectStatus(SendChunks(chunks), code, field);
  };
  refused(kInvalid, "V", [](auto& chunks) { chunks.pop_back(); });
  refused(kInvalid, "first_row", [](auto& chunks) { chunks[1].set_first_row(-1); });
  refused(kInvalid, "tensor", [](auto& chunks) { chunks[1].set_tensor(v1::TENSOR_OUT); });
  refused(absl::StatusCode::kDataLoss, "",
          [](auto& chunks) { (*chunks[1].mutable_payload())[7] ^= 1; });
  RawCall unopened(*stub_, std::chrono::seconds(20));
  unopened.Send(GoodChunks()[0]);
  ExpectStatus(unopened.Finish(), kInvalid, "Open");
}

TEST_F(BadInput, OversizeChunk) {
  JobSpec spec = SmallSpec();
  spec.tokens = 100'000;
  const std::string data(100'000 * 64, '\0');
  const auto end_of = [&](int64_t rows) {
    return SendChunks({MakeChunk(v1::TENSOR_Q, data, 64, 0, rows)}, spec);
  };
  // The transport refuses the larger message. The service refuses the smaller message.
  EXPECT_FALSE(end_of(100'000).ok());
  ExpectStatus(end_of((wire::kMaxPayloadBytes + 6400) / 64), kInvalid, "payload");
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
    int64_t bytes = 0;
    for (const pid_t pid : cluster_->Processes()) bytes += MemoryOf(pid).resident();
    return bytes;
  };
  for (int i = 0; i < 3; ++i) spoil();
  const int64_t before = resident();
  for (int i = 0; i < 12; ++i) spoil();
  if (!kResidentBytesAreTheSanitizers) EXPECT_LT(resident(), before + (24 << 20));
}

}  // namespace
}  // namespace hilbert_ring::testing
