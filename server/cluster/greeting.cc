#include "server/cluster/greeting.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/process/tokens.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr auto kAnswerLimit = std::chrono::seconds(2);
constexpr auto kFirstPause = std::chrono::milliseconds(250);
constexpr auto kLongestPause = std::chrono::seconds(10);
constexpr int kMostMisses = 2;  // in a row: a busy machine may miss one call

}  // namespace

Greeting::Greeting(Membership& membership, std::shared_ptr<const Member> member,
                   Clock::duration interval)
    : membership_(membership),
      member_(std::move(member)),
      interval_(interval),
      pause_(kFirstPause) {}

Greeting::~Greeting() {
  MutexLock lock(mutex_);
  if (under_way_) context_->TryCancel();
  changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !under_way_; });
}

void Greeting::Continue() {
  {
    const MutexLock lock(mutex_);
    if (under_way_ || Clock::now() < next_) return;
    if (answered_ && !membership_.Idle(*member_)) return;
    under_way_ = true;
  }
  context_ = std::make_unique<grpc::ClientContext>();
  context_->set_deadline(OnSystemClock(Clock::now() + kAnswerLimit));
  AddCallToken(*context_, member_->secret, "Greet");
  member_->stub->async()->Greet(context_.get(), &request_, &response_,
                                [this](const grpc::Status& status) { Ended(status); });
}

void Greeting::Ended(const grpc::Status& status) {
  const absl::Status answer = wire::FromGrpc(status);
  bool missed = false;  // and may miss it
  {
    const MutexLock lock(mutex_);
    missed = !answer.ok() && answered_ && ++misses_ < kMostMisses;
  }
  if (missed) {
    // The next heartbeat calls again.
  } else if (answer.ok()) {
    membership_.Reached(*member_);
  } else if (absl::IsUnauthenticated(answer)) {
    membership_.NotReached(*member_, "another process answers there");
  } else if (absl::IsDeadlineExceeded(answer)) {
    membership_.NotReached(
        *member_,
        absl::StrCat("no answer within ", std::chrono::seconds(kAnswerLimit).count(), " s"));
  } else if (!absl::IsCancelled(answer)) {
    membership_.NotReached(*member_, std::string(answer.message()));
  }
  const MutexLock lock(mutex_);
  under_way_ = false;
  answered_ = answer.ok() || missed;
  if (answer.ok()) {
    misses_ = 0;
    pause_ = kFirstPause;
    next_ = Clock::now() + interval_;
  } else if (!missed) {
    next_ = Clock::now() + pause_;
    pause_ = std::min<Clock::duration>(2 * pause_, kLongestPause);
  }
  changed_.notify_all();
}

}  // namespace hilbert_ring::server
