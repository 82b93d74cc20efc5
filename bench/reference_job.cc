#include "bench/reference_job.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>

#include "bench/or_fail.h"
#include "bench/page_cache.h"
#include "client/cpp/attend.h"
#include "client/cpp/by_reference.h"
#include "client/cpp/npy.h"
#include "engine/base/return_if_error.h"
#include "engine/spec/numbers.h"
#include "tests/service/by_reference.h"

namespace hilbert_ring::bench {
namespace {

constexpr const char* kInputs[] = {"q", "k", "v"};
constexpr int64_t kElements = 977 * 512;  // a long period of repeated rows

std::string MakeFolder(const std::string& beneath) {
  std::string path = beneath + "/reference_bench.XXXXXX";
  if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("cannot make " + path);
  return path;
}

void Write(const std::string& path, const JobSpec& spec, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<std::byte> some(static_cast<size_t>(kElements * ElementBytes(spec.dtype)));
  for (int64_t i = 0; i < kElements; ++i) {
    StoreElement(spec.dtype, some.data(), i, normal(random));
  }
  const std::vector<int64_t> shape = {spec.tokens, spec.heads, spec.head_dim};
  const wire::NpyType type =
      spec.dtype == DataType::kFloat32 ? wire::NpyType::kFloat32 : wire::NpyType::kRaw16;
  auto file = OrFail(client::NpyWriter::Create(path, type, shape));
  const std::span<std::byte> data = file.data();
  for (size_t at = 0; at < data.size(); at += some.size()) {
    std::memcpy(data.data() + at, some.data(), std::min(some.size(), data.size() - at));
  }
  OrFail(file.Sync());
  OrFail(file.Commit());
}

}  // namespace

Files::Files(const std::string& folder, const JobSpec& spec) : folder_(MakeFolder(folder)) {
  std::mt19937 random(1);
  for (const char* name : kInputs) Write(Path(name), spec, random);
}

Files::~Files() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

absl::Status Files::DropInputPages() const {
  for (const char* name : kInputs) RETURN_IF_ERROR(DropPages(Path(name)));
  return absl::OkStatus();
}

void Files::ReadInputs() const {
  std::vector<char> block(1 << 20);
  for (const char* name : kInputs) {
    std::ifstream file(Path(name), std::ios::binary);
    while (file.read(block.data(), std::ssize(block))) {
    }
    if (!file.eof()) throw std::runtime_error("cannot read " + Path(name));
  }
}

OneShardJob EngineJob(const JobSpec& spec, Device& device, const Files& files) {
  OneShardJob job(spec, device);
  for (const auto& [kind, name] :
       {std::pair{TensorKind::kQ, "q"}, {TensorKind::kK, "k"}, {TensorKind::kV, "v"}}) {
    job.Place(kind, OrFail(client::NpyFile::Open(files.Path(name))).span());
  }
  return job;
}

Place::Place(const std::string& folder, const JobSpec& sizes, int workers)
    : files_(folder, sizes),
      cluster_(OrFail(testing::Cluster::Start(
          {.workers = workers, .arguments = {"--data-root=" + files_.root()}}))) {
  if (!testing::AwaitDataRoot(*cluster_, workers)) {
    throw std::runtime_error("the workers do not see the data root");
  }
}

void Place::RunByReference(const JobSpec& spec) const {
  const auto named =
      OrFail(client::NameFiles(cluster_->Channel(), {{v1::TENSOR_Q, files_.Path("q")},
                                                     {v1::TENSOR_K, files_.Path("k")},
                                                     {v1::TENSOR_V, files_.Path("v")},
                                                     {v1::TENSOR_OUT, files_.Path("out")}}));
  OrFail(client::AttendInFiles(cluster_->address(), spec, named));
}

void Place::RunSent(const JobSpec& spec) const {
  const auto q = OrFail(client::NpyFile::Open(files_.Path("q")));
  const auto k = OrFail(client::NpyFile::Open(files_.Path("k")));
  const auto v = OrFail(client::NpyFile::Open(files_.Path("v")));
  const std::vector<int64_t> shape = {spec.tokens, spec.heads, spec.value_dim};
  auto out = OrFail(client::NpyWriter::Create(files_.Path("out"), q.type(), shape));
  OrFail(client::Attend(cluster_->address(),
                        {.spec = spec, .q = q.span(), .k = k.span(), .v = v.span()},
                        {.out = out.data()}));
  OrFail(out.Sync());
  OrFail(out.Commit());
}

}  // namespace hilbert_ring::bench
