// A job through the engine alone, interleaved with other programs' (bench/peers.py).
//
//   engine_case SPEC Q K V THREADS [INSTRUCTIONS]
//
// SPEC is a job's JSON file (engine/spec/job_spec_json.h), without an ordering. Q, K and V are raw
// files of [tokens, heads, dim] in the job's type. INSTRUCTIONS are those of DeviceOptions.
// Commands, a line each:
//   run         computes the job and prints its seconds, without placing rows
//   peak        prints the multiply-add peak of the threads, GFLOP/s (bench/measure.h)
//   write FILE  writes the output [tokens, heads, value_dim], raw, in the job's type
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "bench/measure.h"
#include "bench/one_shard_job.h"
#include "bench/or_fail.h"
#include "engine/spec/job_spec_json.h"

namespace hilbert_ring::bench {
namespace {

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void RunCommands(int argc, char** argv) {
  int threads = 0;
  if (argc < 6 || argc > 7 || !absl::SimpleAtoi(argv[5], &threads))
    throw std::runtime_error("SPEC Q K V THREADS");
  const JobSpec spec = OrFail(ParseJobSpec(Contents(argv[1]))).spec;
  if (spec.ordering) throw std::runtime_error("ordering is set, must be absent");
  const auto device =
      OrFail(MakeDevice({.threads = threads, .instructions = argc > 6 ? argv[6] : ""}));
  OneShardJob job(spec, *device);
  const TensorKind kinds[] = {TensorKind::kQ, TensorKind::kK, TensorKind::kV};
  for (int i = 0; i < 3; ++i) {
    const std::span<std::byte> rows = job.Rows(kinds[i]);
    std::ifstream file(argv[2 + i], std::ios::binary);
    if (!file.read(reinterpret_cast<char*>(rows.data()), std::ssize(rows)) ||
        file.peek() != std::ifstream::traits_type::eof())
      throw std::runtime_error(std::string("rows of another size: ") + argv[2 + i]);
  }
  std::cout << device->info().kernel << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "run") {
      std::cout << SecondsOf([&] { job.Run(); }) << std::endl;
    } else if (line == "peak") {
      std::cout << MultiplyAddGflops(device->info().threads) << std::endl;
    } else if (line.starts_with("write ")) {
      const std::vector<std::byte> rows = job.Out();
      std::ofstream(line.substr(6), std::ios::binary)
          .write(reinterpret_cast<const char*>(rows.data()), std::ssize(rows));
      std::cout << "written" << std::endl;
    } else {
      throw std::runtime_error("no command: " + line);
    }
  }
}

}  // namespace
}  // namespace hilbert_ring::bench

int main(int argc, char** argv) {
  try {
    hilbert_ring::bench::RunCommands(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "engine_case: %s\n", error.what());
    return 2;
  }
  return 0;
}
