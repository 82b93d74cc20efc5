// One job through the engine alone. Another program (bench/peers.py) tells it when to run, so
// that its runs alternate with other programs' runs over the same inputs.
//
//   engine_case SPEC Q K V THREADS [INSTRUCTIONS]
//
// SPEC is a file with the job as JSON, as in engine/spec/job_spec_json.h, without coordinates; Q, K
// and V are raw files of [tokens, heads, dim] in the job's type, INSTRUCTIONS those of
// DeviceOptions. Then, a line each, it obeys
//   run         computes the job and prints the seconds that it took, placing of rows not counted
//   peak        prints the multiply-add peak of the threads, GFLOP/s (bench/measure.h)
//   write FILE  writes the output [tokens, heads, value_dim], raw, in the job's type
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "bench/measure.h"
#include "bench/or_fail.h"
#include "engine/order/permutation.h"
#include "engine/run/executor.h"
#include "engine/spec/job_spec_json.h"

namespace hilbert_ring::bench {
namespace {

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Job {
 public:
  Job(const JobSpec& spec, Device& device)
      : device_(device),
        plan_(OrFail(MakePlan(spec, 1))),
        store_(OrFail(ShardStore::Make(device, plan_, 0))),
        tokens_(spec.tokens) {
    std::iota(tokens_.begin(), tokens_.end(), 0);
    if (!spec.ordering) return;
    OrFail(Permutation::Make(spec, {}))->Tokens(0, tokens_);
    OrFail(store_->WriteTokens(0, spec.tokens, tokens_.data()));
  }

  void Place(TensorKind kind, const std::string& path) {
    const std::string rows = Contents(path);
    const int64_t bytes = RowBytes(plan_.spec, kind);
    if (static_cast<int64_t>(rows.size()) != bytes * plan_.spec.tokens) {
      throw std::runtime_error(path + " is not of the spec's size");
    }
    std::string placed(rows.size(), '\0');
    for (int64_t slot = 0; slot < plan_.spec.tokens; ++slot) {
      std::memcpy(placed.data() + slot * bytes, rows.data() + tokens_[slot] * bytes, bytes);
    }
    OrFail(store_->Write(kind, 0, plan_.spec.tokens, placed.data()));
  }

  void Run() { OrFail(Execute(plan_, 0, *store_, device_, nullptr, 1, {})); }

  void Write(const std::string& path) const {
    const int64_t bytes = RowBytes(plan_.spec, TensorKind::kOut);
    std::string rows(bytes * plan_.spec.tokens, '\0');
    std::string computed(rows.size(), '\0');
    OrFail(store_->Read(TensorKind::kOut, 0, plan_.spec.tokens, computed.data()));
    for (int64_t slot = 0; slot < plan_.spec.tokens; ++slot) {
      std::memcpy(rows.data() + tokens_[slot] * bytes, computed.data() + slot * bytes, bytes);
    }
    std::ofstream(path, std::ios::binary) << rows;
  }

 private:
  Device& device_;
  Plan plan_;
  std::unique_ptr<ShardStore> store_;
  std::vector<int64_t> tokens_;  // of each slot
};

// Obeys until there are no more commands.
void Obey(int argc, char** argv) {
  int threads = 0;
  if (argc < 6 || argc > 7 || !absl::SimpleAtoi(argv[5], &threads))
    throw std::runtime_error("SPEC Q K V THREADS");
  const JobSpec spec = OrFail(ParseJobSpec(Contents(argv[1]))).spec;
  const auto device =
      OrFail(MakeDevice({.threads = threads, .instructions = argc > 6 ? argv[6] : ""}));
  Job job(spec, *device);
  job.Place(TensorKind::kQ, argv[2]);
  job.Place(TensorKind::kK, argv[3]);
  job.Place(TensorKind::kV, argv[4]);
  std::cout << device->info().kernel << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "run") {
      std::cout << SecondsOf([&] { job.Run(); }) << std::endl;
    } else if (line == "peak") {
      std::cout << MultiplyAddGflops(device->info().threads) << std::endl;
    } else if (line.starts_with("write ")) {
      job.Write(line.substr(6));
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
    hilbert_ring::bench::Obey(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "engine_case: %s\n", error.what());
    return 2;
  }
  return 0;
}
