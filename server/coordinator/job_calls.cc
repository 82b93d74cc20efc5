#include "server/coordinator/job_calls.h"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/random_bits.h"
#include "engine/base/return_if_error.h"
#include "server/job/client_stream.h"
#include "server/process/process_memory.h"
#include "server/process/trace_context.h"
#include "server/stream/served_stream.h"
#include "wire/codec.h"
#include "wire/status.h"
#include "wire/transport.h"

namespace hilbert_ring::server {
namespace {

constexpr double kLeastRetryAfter = 0.1, kMostRetryAfter = 60;  // seconds
constexpr double kJitter = 0.2;
// A client that does not read its outputs does not get the status behind them.
constexpr auto kStatusTimeout = std::chrono::seconds(30);
constexpr int kMostRunning = 1024;
constexpr int kSpareCalls = 64;     // that end or are about to be refused
constexpr double kPlanSeconds = 2;  // of the longest

std::string_view NameOf(JobMethod method) {
  switch (method) {
    case JobMethod::kAttend:
      return "Attend";
    case JobMethod::kEncode:
      return "Encode";
    case JobMethod::kAttendStream:
      return "AttendStream";
  }
  return "";
}

// Memory of a call before its first message: that message and the lookahead.
constexpr int64_t kFirstBytes = wire::kMaxMessageBytes + wire::kLookaheadBytes;

}  // namespace

absl::Status Stopping() {
  return wire::ErrorOf(wire::reason::kDraining, "the service is stopping");
}

std::chrono::milliseconds RetryAfter(double seconds_of_work) {
  thread_local std::mt19937_64 random(DrawBits());
  const double jitter = std::uniform_real_distribution(1 - kJitter, 1 + kJitter)(random);
  const double seconds =
      std::clamp(seconds_of_work / 2, kLeastRetryAfter, kMostRetryAfter) * jitter;
  return std::chrono::milliseconds(static_cast<int64_t>(1000 * seconds));
}

struct JobCalls::Call {
  JobMethod method;
  std::shared_ptr<ClientStream> stream;
  Caller caller;
  std::string traceparent;
  std::optional<CallGate::Place> place;
  RequestMetrics::Request request;
};

JobCalls::JobCalls(const JobServices& services, Callers& callers, int most_plans)
    : services_(services),
      callers_(callers),
      plans_(most_plans),
      waiting_(services.limits.settings.waiting_memory_bytes),
      streams_(services.limits.settings.stream_memory_bytes),
      gate_({.calls_per_peer = services.limits.settings.max_calls_per_peer,
             .open_timeout = services.limits.settings.open_timeout}),
      calls_(kMostRunning + services.limits.settings.max_queue + kSpareCalls,
             services.memory.threads) {}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* JobCalls::Open(
    grpc::CallbackServerContext* context, JobMethod method) {
  const std::shared_ptr<ClientStream> stream =
      ClientStream::Make(context,
                         {.idle = services_.limits.settings.idle_timeout,
                          .bytes_per_second = services_.limits.settings.least_rate_bytes},
                         services_.observers.time);
  auto caller = CallerOf(*context, {Role::kSubmit, Role::kAdmin}, "run jobs");
  const std::shared_ptr<Call> call(
      new Call{.method = method,
               .stream = stream,
               .caller = caller.ok() ? *caller : Caller{},
               .traceparent = TraceparentOf(*context),
               .place = std::nullopt,
               .request = services_.observers.metrics.requests().Begin(NameOf(method))});
  if (!caller.ok()) {
    Refuse(*call, caller.status());
  } else if (draining_) {
    Refuse(*call, Stopping());
  } else if (absl::Status status = Enter(PeerHost(context->peer()), call); !status.ok()) {
    Refuse(*call, status);
  } else {
    stream->AwaitFirst([this, call] { Begin(call); });
  }
  return stream.get();
}

absl::StatusOr<Caller> JobCalls::CallerOf(const grpc::ServerContextBase& context,
                                          std::initializer_list<Role> roles,
                                          absl::string_view do_what) {
  ASSIGN_OR_RETURN(Caller caller, callers_.Of(context));
  RETURN_IF_ERROR(CheckRole(caller, roles, do_what));
  return caller;
}

grpc::Status JobCalls::Answer(std::string_view method, const grpc::ServerContext& context,
                              std::initializer_list<Role> roles, absl::string_view do_what,
                              absl::FunctionRef<absl::Status(const Caller&)> handler) {
  return services_.observers.metrics.requests().Count(method, [&] {
    const auto caller = CallerOf(context, roles, do_what);
    return wire::ToGrpc(caller.ok() ? handler(*caller) : Refused(caller.status()));
  });
}

absl::Status JobCalls::Refused(absl::Status why) {
  services_.observers.metrics.CountRefused(wire::ReasonOf(why));
  return why;
}

absl::StatusOr<PlanGate::Turn> JobCalls::EnterPlan(const Caller& caller,
                                                   grpc::ServerContext& context) {
  auto turn = plans_.Enter(caller.turns, [&context] { return context.IsCancelled(); });
  if (turn != nullptr) return turn;
  context.AddTrailingMetadata(wire::kRetryAfterKey,
                              std::to_string(RetryAfter(kPlanSeconds).count()));
  return Refused(wire::ErrorOf(wire::reason::kTooManyCalls,
                               absl::StrCat(plans_.most(), " plans are being made, the limit")));
}

// Cuts off calls without a first message if memory is short.
absl::Status JobCalls::Enter(const std::string& peer, const std::shared_ptr<Call>& call) {
  auto waiting = waiting_.Reserve(kFirstBytes);
  while (!waiting.ok() && gate_.CutOffOne()) waiting = waiting_.Reserve(kFirstBytes);
  if (!waiting.ok()) {
    return wire::ErrorOf(wire::reason::kWaitingMemory,
                         absl::StrCat("calls that are not admitted have ", waiting_.used(),
                                      " bytes, this one may take ", kFirstBytes, ", the limit is ",
                                      waiting_.limit(), " (--waiting-memory)"));
  }
  call->stream->waiting().emplace(*std::move(waiting));
  // Holds `call` because Begin may release it while it is cut off.
  auto place = gate_.Enter(peer, [this, call](const absl::Status& why) {
    call->stream->waiting().reset();
    Refuse(*call, why);
  });
  RETURN_IF_ERROR(place.status());
  call->place.emplace(*std::move(place));
  return absl::OkStatus();
}

// Runs on gRPC's thread.
void JobCalls::Begin(const std::shared_ptr<Call>& call) {
  if (!call->place->Open()) return;  // it was cut off
  ClientStream& stream = *call->stream;
  stream.waiting()->Shrink(stream.first_bytes() + wire::kLookaheadBytes);
  absl::Status started = calls_.Start([this, call] { Serve(*call); });
  if (!started.ok()) Refuse(*call, started);
}

void JobCalls::Refuse(Call& call, const absl::Status& why) {
  call.request.End(why.code());
  EndWith(call, Refused(why));
}

void JobCalls::EndWith(Call& call, const absl::Status& error) {
  const bool later = wire::MayHelpLater(error);
  call.stream->End(error,
                   later ? std::optional(RetryAfter(services_.cluster.scheduler.SecondsOfWork()))
                         : std::nullopt);
}

// bytes: receives the bytes that moved through this process's memory.
absl::StatusOr<v1::Report> JobCalls::Run(Call& call, int64_t& bytes) {
  if (call.method == JobMethod::kAttendStream) {
    ServedStream stream(services_, streams_, *call.stream, call.caller, call.traceparent);
    auto ended = stream.Run();
    bytes = stream.held_bytes();
    return ended;
  }
  ServedJob job(services_, *call.stream, call.caller, call.traceparent, call.method);
  auto ended = job.Run();
  bytes = job.client_bytes();
  return ended;
}

void JobCalls::Serve(Call& call) {
  ClientStream& stream = *call.stream;
  const int64_t first_bytes = stream.first_bytes();
  int64_t client_bytes = 0;
  const absl::StatusOr<v1::Report> report = Run(call, client_bytes);
  if (report.ok()) {
    stream.End(*report);
  } else {
    EndWith(call, report.status());
  }
  stream.AwaitDone(kStatusTimeout);
  call.request.End(report.status().code());
  TrimMalloc(first_bytes + client_bytes);
}

}  // namespace hilbert_ring::server
