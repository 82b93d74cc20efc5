// The fuzz targets without a fuzzer: their seed corpora, and mutations of these, seeded by
// HILBERT_RING_FUZZ_SEED.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fuzz/target.h"

namespace hilbert_ring::fuzz {
namespace {

struct Target {
  const char* name;
  void (*run)(Bytes);
  int mutations;
};

constexpr Target kTargets[] = {
    {"attend_messages", AttendMessages, 4000},  {"encoder_config", EncoderConfigJson, 20000},
    {"job_spec_json", JobSpecJson, 20000},      {"npy_header", NpyHeader, 20000},
    {"payload_message", PayloadMessage, 20000}, {"plan", PlanOfSpec, 4000},
    {"safetensors", Safetensors, 20000},
};

void PrintTo(const Target& target, std::ostream* out) { *out << target.name; }

using Input = std::vector<uint8_t>;

std::string corpus_file;
const Input* running = nullptr;

void PrintInput(int) {
  std::fprintf(stderr, "input, from %s:", corpus_file.c_str());
  for (const uint8_t byte : *running) std::fprintf(stderr, " %02x", byte);
  std::fprintf(stderr, "\n");
  std::signal(SIGABRT, SIG_DFL);
  std::raise(SIGABRT);
}

void RunOn(const Target& target, const Input& input) {
  running = &input;
  target.run(input);
}

std::vector<std::string> FilesOf(const std::string& target) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(HILBERT_RING_FUZZ_CORPUS) / target)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void Mutate(Input& input, const std::vector<Input>& corpus, std::mt19937_64& random) {
  for (int changes = 1 + static_cast<int>(random() % 4); changes > 0; --changes) {
    const size_t at = random() % (input.size() + 1);
    switch (random() % 5) {
      case 0:
        if (at < input.size()) input[at] ^= static_cast<uint8_t>(1 << (random() % 8));
        break;
      case 1:
        if (at < input.size()) input[at] = static_cast<uint8_t>(random());
        break;
      case 2:
        input.insert(input.begin() + static_cast<std::ptrdiff_t>(at),
                     static_cast<uint8_t>(random()));
        break;
      case 3:
        if (at < input.size()) input.erase(input.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      default: {
        const Input& other = corpus[random() % corpus.size()];
        input.resize(at);
        const size_t from = random() % (other.size() + 1);
        input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
      }
    }
  }
}

class FuzzReplay : public ::testing::TestWithParam<Target> {};

TEST_P(FuzzReplay, CorpusAndMutations) {
  std::signal(SIGABRT, PrintInput);
  std::vector<Input> corpus;
  const std::vector<std::string> files = FilesOf(GetParam().name);
  ASSERT_FALSE(files.empty());
  for (const std::string& file : files) {
    std::ifstream stream(file, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
    corpus_file = file;
    RunOn(GetParam(), corpus.back());
  }
  const char* const other_seed = std::getenv("HILBERT_RING_FUZZ_SEED");
  std::mt19937_64 random(other_seed == nullptr ? 1 : std::strtoull(other_seed, nullptr, 10));
  for (int i = 0; i < GetParam().mutations; ++i) {
    const size_t seed = random() % corpus.size();
    corpus_file = files[seed];
    Input input = corpus[seed];
    Mutate(input, corpus, random);
    RunOn(GetParam(), input);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzReplay, ::testing::ValuesIn(kTargets),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace hilbert_ring::fuzz
