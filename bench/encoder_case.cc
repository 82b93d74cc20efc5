// A slide through an encoder by the engine alone, interleaved with other programs'
// (bench/encoder_peers.py).
//
//   encoder_case MODEL TILES COORDS COMPUTE THREADS RANKS
//
// MODEL is a folder with config.json and model.safetensors. TILES and COORDS are raw float32 files,
// [tiles, tile_dim] and [tiles, 2]. COMPUTE is float32 or bfloat16. RANKS share the THREADS, as
// threads of this process. Commands, a line each:
//   run         computes the last layer's state and its mean over the tiles; prints wall and CPU
//               seconds
//   figures     prints name and value for the last run. Rank 0: seconds of row work, attention and
//               waits. All ranks: flops of products and attention. Bytes: planned, of the busiest
//               rank, of the weights, and the process's peak
//   peak        prints the multiply-add peak of the threads, GFLOP/s (bench/measure.h)
//   write FILE  writes the slide's pooled vector, raw float32
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/measure.h"
#include "bench/or_fail.h"
#include "engine/base/return_if_error.h"
#include "engine/model/encoder_rank.h"
#include "engine/spec/job_spec_json.h"
#include "tests/conformance/in_process_ring.h"

namespace hilbert_ring::bench {
namespace {

std::vector<float> Floats(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
  return floats;
}

double ProcessorSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

int64_t MostResident() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    int64_t kibibytes = 0;
    if (std::sscanf(line.c_str(), "VmHWM: %ld kB", &kibibytes) == 1) return kibibytes * 1024;
  }
  return 0;
}

class Slide {
 public:
  Slide(std::shared_ptr<const EncoderModel> model, std::vector<float> tiles,
        std::vector<float> coords, int ranks, int threads)
      : held_model_(std::move(model)),
        model_(*held_model_),
        tiles_(std::move(tiles)),
        coords_(coords.begin(), coords.end()),
        threads_(std::max(1, threads / ranks)),
        plan_(OrFail(MakeEncoderPlan(
            model_.config(), model_.compute(),
            {static_cast<int64_t>(tiles_.size()) / model_.config().tile_dim()}, ranks))),
        figures_(ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      devices_.push_back(OrFail(MakeDevice({.threads = threads_})));
    }
  }

  void Run() {
    const auto ring = MakeInProcessRing(static_cast<int>(devices_.size()));
    std::vector<PooledPart> parts(devices_.size());
    std::vector<absl::Status> statuses(devices_.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < devices_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        statuses[rank] = RunRank(static_cast<int>(rank), *ring[rank], parts[rank]);
        if (!statuses[rank].ok()) {
          for (const auto& other : ring) other->Abort("another rank failed");
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : statuses) OrFail(status);
    SlidePool pool(plan_.rows, Pooling::kMean, model_.config().embed_dim);
    for (const PooledPart& part : parts) pool.Add(part);
    pooled_ = OrFail(pool.Finish(*model_.weights().norm));
  }

  std::string Figures() const {
    double products = 0, attention = 0;
    int64_t planned = 0, taken = 0;
    for (size_t rank = 0; rank < figures_.size(); ++rank) {
      products += figures_[rank].product_flops;
      attention += figures_[rank].attention_flops;
      planned = std::max(planned, MemoryOf(plan_, static_cast<int>(rank), threads_,
                                           StorageOf(model_.operand()), Outputs())
                                      .total());
      taken = std::max(taken, figures_[rank].memory_peak_bytes);
    }
    const EncoderFigures& first = figures_.front();
    return absl::StrCat("row_seconds ", first.row_seconds, " attention_seconds ",
                        first.attention_seconds, " wait_seconds ", first.exposed_exchange_seconds,
                        " product_flops ", products, " attention_flops ", attention,
                        " planned_bytes ", planned, " taken_bytes ", taken, " weight_bytes ",
                        model_.bytes(), " most_resident_bytes ", MostResident());
  }

  void Write(const std::string& path) const {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(pooled_.data()),
               static_cast<std::streamsize>(pooled_.size() * sizeof(float)));
  }

 private:
  absl::Status RunRank(int rank, Communicator& communicator, PooledPart& into) {
    ASSIGN_OR_RETURN(const auto encoder,
                     EncoderRank::Make(held_model_, plan_, rank, *devices_[rank], Outputs()));
    const int64_t dim = model_.config().tile_dim();
    for (const ShardRange& range : plan_.attention.shards.OfRank(rank)) {
      const SlideRows::Tiles tiles = plan_.rows.TilesOf(range.begin, range.end);
      std::span<const double> coords(coords_);
      if (!coords.empty()) coords = coords.subspan(2 * tiles.begin, 2 * (tiles.end - tiles.begin));
      RETURN_IF_ERROR(encoder->PlaceTiles({.first = tiles.begin,
                                           .count = tiles.end - tiles.begin,
                                           .values = tiles_.data() + tiles.begin * dim,
                                           .coords = coords},
                                          {}));
    }
    const EncoderControl control{.pooled = [&](int64_t /*state*/, const PooledPart& part) {
      into = part;
      return absl::OkStatus();
    }};
    ASSIGN_OR_RETURN(figures_[rank], encoder->Run(&communicator, 0, control));
    return absl::OkStatus();
  }

  EncoderOutputs Outputs() const {
    return {.states = {model_.config().layers}, .pooling = Pooling::kMean};
  }

  const std::shared_ptr<const EncoderModel> held_model_;
  const EncoderModel& model_;
  const std::vector<float> tiles_;
  const std::vector<double> coords_;
  const int threads_;  // per rank
  const EncoderPlan plan_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<EncoderFigures> figures_;
  std::vector<float> pooled_;
};

void RunCommands(int argc, char** argv) {
  int threads = 0, ranks = 0;
  if (argc != 7 || !absl::SimpleAtoi(argv[5], &threads) || !absl::SimpleAtoi(argv[6], &ranks) ||
      ranks < 1) {
    throw std::runtime_error("MODEL TILES COORDS COMPUTE THREADS RANKS");
  }
  FileDigests digests;
  const auto model = OrFail(EncoderModel::Load(OrFail(EncoderFolder::Open(argv[1], digests)),
                                               {.compute = OrFail(ParseDataType(argv[4]))}));
  Slide slide(model, Floats(argv[2]), Floats(argv[3]), ranks, threads);
  std::cout << OrFail(MakeDevice({.threads = threads}))->info().kernel << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "run") {
      const double before = ProcessorSeconds();
      const double seconds = SecondsOf([&] { slide.Run(); });
      std::cout << seconds << " " << ProcessorSeconds() - before << std::endl;
    } else if (line == "figures") {
      std::cout << slide.Figures() << std::endl;
    } else if (line == "peak") {
      std::cout << MultiplyAddGflops(threads) << std::endl;
    } else if (line.starts_with("write ")) {
      slide.Write(line.substr(6));
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
    std::fprintf(stderr, "encoder_case: %s\n", error.what());
    return 1;
  }
  return 0;
}
