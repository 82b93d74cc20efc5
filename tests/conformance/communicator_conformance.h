// Shared by tests of every communicator: rings of each kind, and steps whose bytes are checked.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/conformance/communicator_rings.h"

namespace hilbert_ring::testing {

inline constexpr std::chrono::milliseconds kLong = std::chrono::seconds(60);
inline constexpr std::chrono::milliseconds kPrompt =
    std::chrono::seconds(1);  // 100 ms, busy machine

using Bytes = std::vector<unsigned char>;

// The bytes that `from` sends to `to` in a step, as its transfer number `place`.
inline Bytes Message(int from, int to, int64_t step, int place, int64_t bytes) {
  Bytes message(bytes);
  uint32_t x = 1 + from + 16 * to + 256 * place + 4096 * static_cast<uint32_t>(step);
  for (unsigned char& byte : message) {
    x = x * 1664525 + 1013904223;
    byte = static_cast<unsigned char>(x >> 24);
  }
  return message;
}

// A rank's step, with the memory of its transfers.
class StepOf {
 public:
  StepOf(int rank, int64_t number) : rank_(rank) { step_.number = number; }

  void Send(int peer, int64_t bytes) {
    sent_.push_back(Message(rank_, peer, step_.number, PlaceOf(step_.sends, peer), bytes));
    step_.sends.push_back({.peer = peer, .data = sent_.back().data(), .bytes = bytes});
  }

  void Receive(int peer, int64_t bytes) {
    expected_.push_back(Message(peer, rank_, step_.number, PlaceOf(step_.receives, peer), bytes));
    received_.emplace_back(bytes);
    step_.receives.push_back({.peer = peer, .data = received_.back().data(), .bytes = bytes});
  }

  const CommStep& step() const { return step_; }
  bool Arrived() const { return received_ == expected_; }

 private:
  template <typename Transfers>
  static int PlaceOf(const Transfers& transfers, int peer) {
    int place = 0;
    for (const auto& transfer : transfers) place += transfer.peer == peer ? 1 : 0;
    return place;
  }

  const int rank_;
  CommStep step_;
  std::vector<Bytes> sent_, received_, expected_;
};

inline absl::Status PostAndWait(Communicator& communicator, const CommStep& step,
                                Deadline deadline) {
  absl::Status posted = communicator.Post(step);
  return posted.ok() ? communicator.Wait(deadline) : posted;
}

// Expects that the step ends and its bytes are right.
inline void Exchange(Communicator& communicator, const StepOf& step,
                     Deadline deadline = After(kLong)) {
  const absl::Status status = PostAndWait(communicator, step.step(), deadline);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(step.Arrived()) << "rank " << communicator.rank() << " step " << step.step().number;
}

inline std::chrono::milliseconds Since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                               start);
}

using Param = std::tuple<RingKind, int>;

class CommunicatorTest : public ::testing::TestWithParam<Param> {
 protected:
  int size() const { return std::get<1>(GetParam()); }

  CommunicatorRing Ring() const {
    auto ring = MakeCommunicatorRing(std::get<0>(GetParam()), size());
    if (!ring.ok()) {
      ADD_FAILURE() << ring.status();
      std::abort();
    }
    return *std::move(ring);
  }

  // Every rank sends and receives: step numbers rise with gaps, sizes differ by sender and step.
  void PassAround(const CommunicatorRing& ring, int64_t first_step = 0) const {
    RunRanks(ring, [&](int rank, Communicator& communicator) {
      for (int64_t t = 0; t < 5; ++t) {
        StepOf step(rank, first_step + 3 * t);
        if (size() > 1) {
          const int before = (rank + size() - 1) % size();
          step.Send((rank + 1) % size(), SizeOf(rank, t));
          step.Receive(before, SizeOf(before, t));
        }
        Exchange(communicator, step, Deadline::max());
      }
    });
  }

  static int64_t SizeOf(int from, int64_t t) { return (from + t) % 3 * 40000 + (from + t) % 2; }
};

inline std::string ParamName(const ::testing::TestParamInfo<Param>& info) {
  return absl::StrCat(RingKindName(std::get<0>(info.param)), std::get<1>(info.param));
}

inline const auto kKinds =
    ::testing::Values(RingKind::kInProcess, RingKind::kGloo, RingKind::kCheckedInProcess,
                      RingKind::kCheckedGloo, RingKind::kFakeNccl);

}  // namespace hilbert_ring::testing
