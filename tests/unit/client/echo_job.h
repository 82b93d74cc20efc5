// A job for FakeService, with its expected outputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/attend.h"
#include "client/cpp/service.h"
#include "engine/spec/job_spec.h"
#include "tests/unit/client/fake_service.h"

namespace hilbert_ring::client {

class EchoJob {
 public:
  explicit EchoJob(int64_t tokens = 50, int64_t heads = 2) {
    spec_ = {.tokens = tokens, .heads = heads, .kv_heads = heads, .head_dim = 16, .value_dim = 16};
    spec_.branches = {{tokens, 1}};
    uint32_t state = 1;
    for (auto* bytes : {&q_, &k_, &v_}) {
      bytes->resize(static_cast<size_t>(tokens * heads * 16 * 4));
      for (std::byte& byte : *bytes) {
        state = state * 1664525 + 1013904223;
        byte = static_cast<std::byte>(state >> 24);
      }
    }
    out_.resize(q_.size());
    lse_.resize(static_cast<size_t>(tokens * heads * 4));
  }

  AttendInputs inputs() const { return {.spec = spec_, .q = q_, .k = k_, .v = v_}; }
  AttendOutputs outputs() { return {.out = out_, .lse = lse_}; }

  absl::StatusOr<v1::Report> Attend(const std::string& address, const AttendOptions& options = {}) {
    return client::Attend(Connect(address), inputs(), outputs(), options);
  }
  absl::StatusOr<v1::Report> Attend(FakeBehaviour behaviour, const AttendOptions& options = {}) {
    const FakeService service(std::move(behaviour));
    return Attend(service.address(), options);
  }

  static std::string Text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  bool echoed() const { return out_ == q_; }

  JobSpec spec_;
  std::vector<std::byte> q_, k_, v_, out_, lse_;
};

}  // namespace hilbert_ring::client
