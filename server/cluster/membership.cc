#include "server/cluster/membership.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"
#include "server/process/logging.h"
#include "server/process/tokens.h"
#include "server/process/version.h"
#include "wire/control_characters.h"

namespace hilbert_ring::server {
namespace {

constexpr size_t kMostSeats = 4096;
constexpr std::chrono::milliseconds kJoiningInterval{20};
constexpr std::chrono::milliseconds kFirstBackoff{1000};
constexpr std::chrono::milliseconds kLongestBackoff{60'000};

// At the host that answered: a worker cannot name another host.
std::string MetricsAddress(const Member& member) {
  constexpr int kMostPort = 65535;
  const size_t colon = member.address.rfind(':');
  if (member.http_port <= 0 || member.http_port > kMostPort || colon == std::string::npos) {
    return "";
  }
  return absl::StrCat(member.address.substr(0, colon), ":", member.http_port);
}

}  // namespace

int MostThreads(const Members& members) {
  int most = 1;
  for (const auto& member : members) {
    if (member->threads == 0) return 0;
    most = std::max(most, member->threads);
  }
  return most;
}

Membership::Membership(std::chrono::milliseconds timeout, Hooks hooks, const TimeSource& time,
                       Calling calling)
    : timeout_(timeout),
      time_(time),
      hooks_(std::move(hooks)),
      calling_(std::move(calling)),
      dropper_(timeout / 8, [this](const std::stop_token&) { DropSilent(); }) {}

Membership::~Membership() = default;

std::list<Membership::Seat>::iterator Membership::Find(const Member& member) {
  return std::find_if(seats_.begin(), seats_.end(),
                      [&](const Seat& seat) { return seat.member.get() == &member; });
}

bool Membership::Idle(const Member& member) const {
  const MutexLock lock(mutex_);
  return std::any_of(seats_.begin(), seats_.end(), [&member](const Seat& seat) {
    return seat.member.get() == &member && seat.state == v1::ClusterWorker::STATE_UP &&
           seat.job_id.empty();
  });
}

absl::StatusOr<std::shared_ptr<const Member>> Membership::Register(const v1::Heartbeat& heartbeat) {
  if (heartbeat.version() != kVersion) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", heartbeat.address(),
                                                      " has version ", heartbeat.version(),
                                                      ", the coordinator ", std::string(kVersion)));
  }
  constexpr size_t kMostAddressBytes = 256;
  if (heartbeat.address().size() > kMostAddressBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("heartbeat: address '", heartbeat.address().substr(0, 32), "...' has ",
                     heartbeat.address().size(), " bytes, must be at most ", kMostAddressBytes));
  }
  if (std::string address = heartbeat.address(); wire::ReplaceControls(address)) {
    return absl::InvalidArgumentError(
        absl::StrCat("heartbeat: address '", address, "' has control characters"));
  }
  if (heartbeat.address().empty() || heartbeat.memory_limit_bytes() <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("heartbeat: address '", heartbeat.address(),
                                                   "' or memory_limit_bytes ",
                                                   heartbeat.memory_limit_bytes(), " is missing"));
  }
  ASSIGN_OR_RETURN(auto secret, DrawSecret());
  auto member = std::make_shared<Member>();
  member->address = heartbeat.address();
  member->secret = std::move(secret);
  member->device = heartbeat.device();
  member->kernel = heartbeat.kernel();
  member->transport = heartbeat.transport();
  member->self_test = wire::EscapeControls(heartbeat.self_test());
  member->http_port = heartbeat.http_port();
  member->memory_limit_bytes = heartbeat.memory_limit_bytes();
  const bool gpu = absl::StartsWith(heartbeat.kernel(), "cuda/");
  member->threads = gpu ? 0 : std::max(1, heartbeat.threads());
  member->express_lanes = std::max(1, heartbeat.express_lanes());
  member->model_memory_bytes = std::max<int64_t>(0, heartbeat.model_memory_bytes());
  member->bfloat16_products = heartbeat.bfloat16_products();
  member->models.Set(heartbeat.models());
  if (hooks_.dial) {
    member->channel = hooks_.dial(heartbeat.address());
  } else {
    member->channel = Dial(heartbeat.address(), timeout_, calling_);
    member->channel->GetState(true);  // connects now, not with the greeting
  }
  member->stub = v1::WorkerService::NewStub(member->channel);
  const MutexLock lock(mutex_);
  if (seats_.size() >= kMostSeats) {
    return absl::ResourceExhaustedError(
        absl::StrCat(seats_.size(), " workers are registered, the limit is ", kMostSeats));
  }
  seats_.push_back({.member = member, .beat = time_.Now(), .registered = time_.Now()});
  return member;
}

void Membership::SetDataMark(std::string file, std::string mark) {
  data_mark_file_ = std::move(file);
  data_mark_ = std::move(mark);
}

void Membership::Reached(const Member& member) {
  bool joined = false;  // before
  {
    const MutexLock lock(mutex_);
    const auto seat = Find(member);
    if (seat == seats_.end() || seat->state != v1::ClusterWorker::STATE_JOINING) return;
    const bool passed = member.self_test.empty();
    seat->state = passed ? v1::ClusterWorker::STATE_UP : v1::ClusterWorker::STATE_QUARANTINED;
    seat->reason = passed ? "" : absl::StrCat("failed its self-test: ", member.self_test);
    joined = std::exchange(seat->joined, true);
  }
  Drop(
      [&](const Seat& seat) {
        return seat.member->address == member.address && seat.member.get() != &member;
      },
      "another process registered at its address");
  if (joined) {
    LogEvent(spdlog::level::info, "worker answers again", {{"worker", member.address}});
    NotifyChange();
    hooks_.closed(member);
    return;
  }
  LogEvent(spdlog::level::info, "worker joined",
           {{"worker", member.address},
            {"device", member.device},
            {"kernel", member.kernel},
            {"transport", member.transport},
            {"memory_limit_bytes", member.memory_limit_bytes}});
  if (!member.self_test.empty()) {
    spdlog::error("worker {} failed its self-test and gets no jobs: {}", member.address,
                  member.self_test);
  }
  NotifyChange();
  hooks_.joined(member);
}

void Membership::NotReached(const Member& member, const std::string& why) {
  bool known = false, was_up = false;
  {
    const MutexLock lock(mutex_);
    const auto seat = Find(member);
    if (seat == seats_.end()) return;
    was_up = seat->state == v1::ClusterWorker::STATE_UP;
    if (was_up ? !seat->job_id.empty() : seat->state != v1::ClusterWorker::STATE_JOINING) return;
    seat->state = v1::ClusterWorker::STATE_JOINING;
    std::string reason =
        absl::StrCat("cannot be reached at ", member.address, ": ", wire::EscapeControls(why));
    known = seat->reason == reason;
    seat->reason = std::move(reason);
  }
  if (const auto unreached = known ? std::nullopt : unreached_.Note(time_.Now())) {
    spdlog::warn(
        "worker {} {} but gets no jobs because it cannot be reached at this address{}: {} (check "
        "its --host; such workers since the last such line: {})",
        member.address, was_up ? "beats" : "registered", was_up ? " any more" : "", why,
        *unreached);
  }
  if (was_up) {
    NotifyChange();
    hooks_.closed(member);
  }
  hooks_.failed(member);
}

v1::HeartbeatReply Membership::ReplyTo(const Member& member) const {
  v1::HeartbeatReply reply;
  reply.set_interval_ms((timeout_ / 4).count());
  reply.set_data_mark_file(data_mark_file_);
  const MutexLock lock(mutex_);
  for (const Seat& seat : seats_) {
    if (seat.member.get() != &member) continue;
    reply.set_up(seat.state != v1::ClusterWorker::STATE_JOINING);
    reply.set_reason(seat.reason);
    // Its next heartbeat gets `up`.
    if (!reply.up() && time_.Now() - seat.registered < timeout_ / 2) {
      reply.set_interval_ms(kJoiningInterval.count());
    }
  }
  return reply;
}

void Membership::Failed(const Member& member, const std::string& why) {
  std::chrono::milliseconds backoff = kFirstBackoff;
  {
    const MutexLock lock(mutex_);
    const auto seat = Find(member);
    if (seat == seats_.end()) return;  // it has left
    for (int i = 0; i < seat->failures && backoff < kLongestBackoff; ++i) backoff *= 2;
    backoff = std::min(backoff, kLongestBackoff);
    ++seat->failures;
    seat->reason =
        absl::StrCat("failed ", seat->failures, " jobs in a row: ", wire::EscapeControls(why));
    member.backs_off_until = (time_.Now() + backoff).time_since_epoch();
  }
  spdlog::warn("worker {} gets no jobs for {} ms because it failed one: {}", member.address,
               backoff.count(), why);
  hooks_.failed(member);
}

void Membership::NoteFailure(const Member& member, const std::string& why) {
  spdlog::warn("worker {} failed a job: {}", member.address, why);
  hooks_.failed(member);
}

void Membership::Worked(const Members& members) {
  const MutexLock lock(mutex_);
  for (const auto& member : members) {
    member->worked_at = time_.Now().time_since_epoch();
    const auto seat = Find(*member);
    if (seat == seats_.end() || seat->failures == 0) continue;
    seat->failures = 0;
    seat->reason.clear();
    member->backs_off_until = Clock::duration(0);
  }
}

bool Membership::Beat(const Member& member, const v1::Heartbeat& heartbeat) {
  bool joined = false;
  {
    const MutexLock lock(mutex_);
    const auto seat = Find(member);
    if (seat == seats_.end()) return false;
    seat->beat = time_.Now();
    seat->member->models.Set(heartbeat.models());
    seat->used_bytes = heartbeat.memory_used_bytes();
    seat->resident_bytes = heartbeat.memory_resident_bytes();
    joined = seat->joined;
  }
  const bool sees = !data_mark_.empty() && heartbeat.data_mark() == data_mark_;
  if (member.sees_data_root.exchange(sees) != sees) NotifyChange();
  if (heartbeat.draining()) Close(member, v1::ClusterWorker::STATE_DRAINING);
  if (joined) hooks_.beat(member, heartbeat);
  return true;
}

void Membership::Leave(const Member& member) {
  Drop(
      [&](const Seat& seat) {
        if (seat.member.get() != &member) return false;
        seat.member->left_in_order = seat.state == v1::ClusterWorker::STATE_DRAINING;
        return true;
      },
      "its stream ended");
}

bool Membership::Quarantine(const Member& member) {
  if (!Close(member, v1::ClusterWorker::STATE_QUARANTINED)) return false;
  spdlog::error(
      "worker {} sent wrong rows and gets no more jobs: restart it, on another machine if this "
      "happens again",
      member.address);
  return true;
}

bool Membership::Close(const Member& member, v1::ClusterWorker::State state) {
  {
    const MutexLock lock(mutex_);
    const auto seat = Find(member);
    if (seat == seats_.end() || seat->state != v1::ClusterWorker::STATE_UP) return false;
    seat->state = state;
  }
  NotifyChange();
  hooks_.closed(member);
  return true;
}

template <typename Chosen>
void Membership::Drop(const Chosen& chosen, std::string_view why) {
  std::list<Seat> dropped;
  std::set<std::string> gone;
  {
    const MutexLock lock(mutex_);
    for (auto seat = seats_.begin(); seat != seats_.end();) {
      const auto next = std::next(seat);
      if (chosen(*seat)) dropped.splice(dropped.end(), seats_, seat);
      seat = next;
    }
    for (const Seat& seat : dropped) gone.insert(seat.member->address);
    for (const Seat& seat : seats_) gone.erase(seat.member->address);
  }
  for (const Seat& seat : dropped) {
    const bool joined = seat.joined;
    const std::string_view drained =
        seat.member->left_in_order ? "it was stopped, and drained" : why;
    LogEvent(joined ? spdlog::level::info : spdlog::level::debug, "worker left",
             {{"worker", seat.member->address},
              {"reason", std::string(drained)},
              {"job", seat.job_id},
              {"seconds", SecondsBetween(seat.registered, time_.Now())}});
    seat.member->departed.request_stop();
    NotifyChange();
    if (joined) hooks_.left(*seat.member);
  }
  for (const std::string& address : gone) hooks_.gone(address);
}

void Membership::DropSilent() {
  // Heartbeats may wait to be read if this process was suspended.
  const Clock::time_point now = Clock::now();
  const bool slept = now - std::exchange(awake_, now) > timeout_ / 2;
  if (slept) return;
  const Clock::time_point latest = time_.Now();
  Drop([&](const Seat& seat) { return latest - seat.beat > timeout_; }, "its heartbeats stopped");
}

void Membership::NotifyChange() {
  const MutexLock lock(mutex_);
  ++changes_;
  changed_.notify_all();
}

std::vector<std::string> Membership::Joined() const {
  const MutexLock lock(mutex_);
  std::vector<std::string> addresses;
  for (const Seat& seat : seats_) {
    if (seat.joined) addresses.push_back(seat.member->address);
  }
  return addresses;
}

int64_t Membership::changes() const {
  const MutexLock lock(mutex_);
  return changes_;
}

absl::Status Membership::AwaitChange(int64_t seen, Deadline deadline, const JobStop& stop) {
  MutexLock lock(mutex_);
  time_.WaitUntil(changed_, lock, stop.token(), deadline,
                  [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return changes_ != seen; });
  return stop.why();
}

Members Membership::Live() const {
  const MutexLock lock(mutex_);
  Members live;
  for (const Seat& seat : seats_) {
    if (seat.state == v1::ClusterWorker::STATE_UP) live.push_back(seat.member);
  }
  return live;
}

void Membership::SetJob(const Members& members, const std::string& job_id) {
  const MutexLock lock(mutex_);
  for (Seat& seat : seats_) {
    if (std::find(members.begin(), members.end(), seat.member) != members.end()) {
      seat.job_id = job_id;
    }
  }
}

std::vector<v1::ClusterWorker> Membership::Describe() const {
  const MutexLock lock(mutex_);
  std::vector<v1::ClusterWorker> workers;
  for (const Seat& seat : seats_) {
    v1::ClusterWorker& worker = workers.emplace_back();
    worker.set_address(seat.member->address);
    worker.set_device(seat.member->device);
    worker.set_kernel(seat.member->kernel);
    worker.set_memory_limit_bytes(seat.member->memory_limit_bytes);
    worker.set_memory_used_bytes(seat.used_bytes);
    worker.set_memory_resident_bytes(seat.resident_bytes);
    worker.set_seconds_since_heartbeat(SecondsBetween(seat.beat, time_.Now()));
    worker.set_job_id(seat.job_id);
    const bool backs_off = seat.state == v1::ClusterWorker::STATE_UP &&
                           seat.member->backs_off_until.load() > time_.Now().time_since_epoch();
    worker.set_state(backs_off ? v1::ClusterWorker::STATE_BACKING_OFF : seat.state);
    worker.set_reason(seat.reason);
    worker.set_transport(seat.member->transport);
    worker.set_metrics_address(MetricsAddress(*seat.member));
  }
  return workers;
}

}  // namespace hilbert_ring::server
