// Runs one job through the C++ client: attend [HOST:PORT]. Equal scores make each output the mean
// of V.
#include "client/cpp/attend.h"

#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

int main(int argc, char** argv) {
  using namespace hilbert_ring;
  const JobSpec spec{.tokens = 4096,
                     .heads = 4,
                     .kv_heads = 4,
                     .head_dim = 64,
                     .value_dim = 64,
                     .branches = {{.segment = 1024, .dilation = 1}}};
  const size_t numbers = spec.tokens * spec.heads * spec.head_dim;
  std::vector<float> q(numbers, 0.0f), k(numbers, 1.0f), v(numbers), out(numbers);
  for (size_t i = 0; i < numbers; ++i) v[i] = i / 256 % 1024;  // index of the token in its segment
  const auto report = client::Attend(argc > 1 ? argv[1] : "localhost:8001",
                                     {.spec = spec,
                                      .q = std::as_bytes(std::span(q)),
                                      .k = std::as_bytes(std::span(k)),
                                      .v = std::as_bytes(std::span(v))},
                                     {.out = std::as_writable_bytes(std::span(out))});
  if (!report.ok()) {
    std::fprintf(stderr, "%s\n", report.status().ToString().c_str());
    return 1;
  }
  for (const float number : out) {
    if (std::abs(number - 511.5f) > 0.01f) return 2;
  }
  std::printf("%lld tokens, each the mean of its segment\n", (long long)report->tokens());
}
