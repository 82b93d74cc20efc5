#include "tests/service/encode_files.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/await.h"
#include "wire/codec.h"

namespace hilbert_ring::testing {
namespace {

template <typename T>
void WriteArray(const std::string& path, wire::NpyType type, std::vector<int64_t> shape,
                const std::vector<T>& values) {
  std::ofstream file(path, std::ios::binary);
  file << wire::FormatNpyHeader(type, shape);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(T)));
}

}  // namespace

EncodeFolder::EncodeFolder(std::string root) : root_(std::move(root)) {
  std::filesystem::create_directories(root_);
}

std::string EncodeFolder::PathOf(v1::Tensor tensor) const {
  return absl::StrCat(root_, "/", wire::TensorName(tensor), ".npy");
}

std::vector<v1::TensorFile> EncodeFolder::Write(const v1::EncodeSpec& spec,
                                                const EncodeInputs& inputs) const {
  std::vector<v1::Tensor> tensors = {v1::TENSOR_TILES};
  WriteArray(PathOf(v1::TENSOR_TILES), wire::NpyType::kFloat32,
             {inputs.count, std::ssize(inputs.tiles) / inputs.count}, inputs.tiles);
  if (!inputs.coords.empty()) {
    tensors.push_back(v1::TENSOR_TILE_COORDS);
    WriteArray(PathOf(v1::TENSOR_TILE_COORDS), wire::NpyType::kFloat64, {inputs.count, 2},
               inputs.coords);
  }
  if (spec.pooling() == v1::POOLING_NONE) tensors.push_back(v1::TENSOR_STATES);
  if (spec.attention_map_layer() > 0) tensors.push_back(v1::TENSOR_ATTENTION_MAP);
  std::vector<v1::TensorFile> files;
  for (const v1::Tensor tensor : tensors) {
    files.emplace_back().set_tensor(tensor);
    files.back().set_path(absl::StrCat(wire::TensorName(tensor), ".npy"));
  }
  for (const v1::Tensor output : {v1::TENSOR_STATES, v1::TENSOR_ATTENTION_MAP}) {
    std::filesystem::remove(PathOf(output));
  }
  return files;
}

std::vector<float> EncodeFolder::Read(v1::Tensor tensor, wire::NpyHeader* header) const {
  std::ifstream file(PathOf(tensor), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto parsed = wire::ParseNpyHeader(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  if (!parsed.ok()) return {};
  EXPECT_EQ(parsed->type, wire::NpyType::kFloat32);
  EXPECT_EQ(std::ssize(text), parsed->data_offset + parsed->data_bytes);
  std::vector<float> values(static_cast<size_t>(parsed->data_bytes) / sizeof(float));
  std::memcpy(values.data(), text.data() + parsed->data_offset, values.size() * sizeof(float));
  if (header != nullptr) *header = *parsed;
  return values;
}

std::vector<std::string> EncodeFolder::Names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root_)) {
    const std::string name = entry.path().filename();
    if (!name.ends_with(".root")) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

bool AwaitDataRoot(const Cluster& cluster, int workers) {
  const auto stub = cluster.Stub();
  return Await([&] {
    grpc::ClientContext context;
    v1::GetDataRootResponse root;
    return stub->GetDataRoot(&context, {}, &root).ok() && root.workers() == workers;
  });
}

}  // namespace hilbert_ring::testing
