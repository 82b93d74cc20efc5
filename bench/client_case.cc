// Jobs of the published configuration by the C++ client: a job for each input line, interleaved
// with another program's (bench/python_client.py).
//
//   client_case SERVER TOKENS     prints the seconds of each job
#include <malloc.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "client/cpp/attend.h"
#include "client/cpp/service.h"
#include "tests/support/plain_spec.h"

namespace hilbert_ring {
namespace {

int Run(const std::string& server, int64_t tokens) {
  const JobSpec spec = PublishedSpec(tokens);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> q(tokens * spec.heads * spec.head_dim);
  for (float& value : q) value = normal(random);
  const std::vector<float> k(q.rbegin(), q.rend());
  const std::vector<float> v(k.begin(), k.end());
  std::vector<float> out(q.size());
  const auto channel = client::Connect(server);
  const client::AttendInputs inputs{.spec = spec,
                                    .q = std::as_bytes(std::span(q)),
                                    .k = std::as_bytes(std::span(k)),
                                    .v = std::as_bytes(std::span(v))};
  std::printf("ready\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    const auto start = std::chrono::steady_clock::now();
    const auto report =
        client::Attend(channel, inputs, {.out = std::as_writable_bytes(std::span(out))});
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (!report.ok()) {
      std::fprintf(stderr, "%s\n", report.status().ToString().c_str());
      return 1;
    }
    std::printf("%.4f\n", seconds.count());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace hilbert_ring

int main(int argc, char** argv) {
  // Keeps the transport's buffers, like the command.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
  int64_t tokens = 0;
  if (argc != 3 || !absl::SimpleAtoi(argv[2], &tokens) || tokens < 1) {
    std::fprintf(stderr, "client_case SERVER TOKENS\n");
    return 2;
  }
  return hilbert_ring::Run(argv[1], tokens);
}
