// A stream without end is retried until the service admits it, and never after.
#include "client/cpp/attend_stream.h"

#include <atomic>

#include "gtest/gtest.h"
#include "hilbert_ring/v1/attention.grpc.pb.h"
#include "tests/unit/client/echo_job.h"
#include "tests/unit/client/fake_server.h"
#include "tests/unit/client/manual_timing.h"

namespace hilbert_ring::client {
namespace {

// Ends each stream with UNAVAILABLE, the second one after admitting it.
class LosingService final : public v1::AttentionService::Service {
 public:
  grpc::Status AttendStream(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::AttendResponse, v1::AttendRequest>* stream) override {
    v1::AttendRequest request;
    stream->Read(&request);
    if (++calls == 2) {
      v1::AttendResponse response;
      response.mutable_admitted()->set_epoch_tokens(64);
      stream->Write(response);
      while (stream->Read(&request)) {
      }
    }
    return {grpc::StatusCode::UNAVAILABLE, "from the test"};
  }

  std::atomic<int> calls = 0;
};

TEST(AttendStream, IsMadeAgainUntilTheServiceHasTakenIt) {
  LosingService service;
  const FakeServer server(service, 0);
  ManualTiming timing;
  AttendStreamCalls calls{.spec = EchoJob().spec_};
  calls.spec.tokens = 0;
  calls.spec.ordering.reset();
  int asked = 0;
  calls.next = [&](const std::stop_token&) -> absl::StatusOr<std::optional<StreamBlock>> {
    ++asked;
    return std::nullopt;
  };
  calls.take = [](const StreamedRows&) { return absl::OkStatus(); };
  const absl::Status status =
      AttendStream(server.address(), calls, {.timing = timing.timing()}).status();
  EXPECT_EQ(status, absl::UnavailableError("from the test"));
  EXPECT_EQ(service.calls, 2);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(timing.slept.size(), 1u);
}

}  // namespace
}  // namespace hilbert_ring::client
