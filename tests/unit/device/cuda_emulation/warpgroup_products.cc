#include "tests/unit/device/cuda_emulation/warpgroup_products.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/unit/device/cuda_emulation/block_runner.h"

namespace hilbert_ring::emulation {
namespace {

constexpr int kGroupThreads = 4 * kWarpThreads;
constexpr int kRows = 64;
constexpr int kDepth = 16;
constexpr int kMostColumns = 128;

using Batch = std::vector<Product>;

struct ThreadProducts {
  uint64_t block = 0;
  bool begun = false;
  Batch open;
  std::vector<Batch> committed;
};

// Products of the block that the system thread runs.
ThreadProducts& ProductsOf(int thread) {
  thread_local std::vector<ThreadProducts> products;
  if (static_cast<int>(products.size()) <= thread) products.resize(thread + 1);
  if (products[thread].block != BlockNumber()) products[thread] = {.block = BlockNumber()};
  return products[thread];
}

constexpr uint64_t kFirstAddress = 1024;  // of shared memory, like the machine's

// Element (row, column) of a matrix of rows of 64 elements, by the PTX ISA and CUTLASS's canonical
// layouts: eight rows of 128 bytes, then a stride; bits 7 to 9 of the address permute pieces of 16
// bytes.
uint16_t ElementAt(uint64_t matrix, int row, int column) {
  const uint64_t first = (matrix & 0x3fff) * 16, stride = (matrix >> 32 & 0x3fff) * 16;
  if (matrix >> 62 != 1 || (matrix >> 49 & 7) != 0) Fail("a descriptor of another layout");
  uint64_t at = first + static_cast<uint64_t>(row / 8) * stride +
                static_cast<uint64_t>(row % 8 * 128 + column * 2);
  at ^= (at >> 7 & 7) << 4;
  at -= kFirstAddress;
  if (at >= SharedSize()) Fail("a product reads beyond shared memory");
  uint16_t element = 0, published = 0;
  std::memcpy(&element, SharedBytes() + at, sizeof(element));
  std::memcpy(&published, PublishedBytes() + at, sizeof(published));
  if (element != published) Fail("a product reads unpublished memory");
  return element;
}

bool Agree(const Product& a, const Product& b) {
  return a.columns == b.columns && a.add == b.add && a.left_matrix == b.left_matrix &&
         a.right_matrix == b.right_matrix && a.rows_are_columns == b.rows_are_columns;
}

// With g = t % 32 / 4, c = t % 4 and w = t / 32: sum i of a thread is row 16 w + g + 8 (i / 2 % 2),
// column 8 (i / 4) + 2 c + i % 2; element i of the left side (two a register) is row
// 16 w + g + 8 (i / 2 % 2), column 2 c + i % 2 + 8 (i / 4).
void Multiply(int first, size_t batch, size_t number) {
  const auto product_of = [&](int t) -> const Product& {
    const ThreadProducts& thread = ProductsOf(first + t);
    if (batch >= thread.committed.size() || number >= thread.committed[batch].size()) {
      Fail("threads of a warpgroup have started other products");
    }
    return thread.committed[batch][number];
  };
  const Product shape = product_of(0);
  static thread_local float a[kRows][kDepth], b[kDepth][kMostColumns];
  for (int k = 0; k < kDepth; ++k) {
    for (int column = 0; column < shape.columns; ++column) {
      b[k][column] =
          shape.to_float(shape.rows_are_columns ? ElementAt(shape.right_matrix, column, k)
                                                : ElementAt(shape.right_matrix, k, column));
    }
  }
  for (int t = 0; t < kGroupThreads; ++t) {
    const Product& product = product_of(t);
    if (!Agree(product, shape)) Fail("threads of a warpgroup have started other products");
    if (product.left == nullptr) continue;
    for (int i = 0; i < 8; ++i) {
      const int row = t / 32 * 16 + t % 32 / 4 + 8 * (i / 2 % 2);
      const uint32_t pair = product.left[i / 2];
      a[row][2 * (t % 4) + i % 2 + 8 * (i / 4)] =
          shape.to_float(static_cast<uint16_t>(i % 2 == 0 ? pair : pair >> 16));
    }
  }
  for (int row = 0; row < kRows && shape.left == nullptr; ++row) {
    for (int k = 0; k < kDepth; ++k) {
      a[row][k] = shape.to_float(ElementAt(shape.left_matrix, row, k));
    }
  }
  for (int t = 0; t < kGroupThreads; ++t) {
    float* const sums = product_of(t).sums;
    for (int i = 0; i < shape.columns / 2; ++i) {
      const int row = t / 32 * 16 + t % 32 / 4 + 8 * (i / 2 % 2);
      const int column = 8 * (i / 4) + 2 * (t % 4) + i % 2;
      float sum = shape.add ? sums[i] : 0.0f;
      for (int k = 0; k < kDepth; ++k) sum += a[row][k] * b[k][column];
      sums[i] = sum;
    }
  }
}

}  // namespace

uint32_t AddressOf(const void* shared) {
  const auto at = static_cast<const std::byte*>(shared) - SharedBytes();
  return static_cast<uint32_t>(kFirstAddress + static_cast<uint64_t>(at));
}

void BeginProducts() { ProductsOf(ThreadOfBlock()).begun = true; }

void StartProduct(const Product& product) {
  ThreadProducts& thread = ProductsOf(ThreadOfBlock());
  if (!thread.begun) Fail("a product was started without a fence before it");
  thread.open.push_back(product);
}

void CommitProducts() {
  ThreadProducts& thread = ProductsOf(ThreadOfBlock());
  thread.committed.push_back(std::move(thread.open));
  thread.open.clear();
}

void AwaitProducts(int left) {
  ThreadProducts& own = ProductsOf(ThreadOfBlock());
  if (!own.open.empty()) Fail("products were not committed");
  own.begun = false;
  WarpgroupInstruction(left, [](int first, int batches_left) {
    const size_t batches = ProductsOf(first).committed.size();
    const size_t due = batches - std::min(batches, static_cast<size_t>(batches_left));
    for (size_t batch = 0; batch < due; ++batch) {
      const size_t products = ProductsOf(first).committed[batch].size();
      for (size_t number = 0; number < products; ++number) Multiply(first, batch, number);
    }
    for (int t = 0; t < kGroupThreads; ++t) {
      auto& committed = ProductsOf(first + t).committed;
      if (committed.size() != batches) Fail("threads of a warpgroup have parted");
      committed.erase(committed.begin(), committed.begin() + static_cast<std::ptrdiff_t>(due));
    }
  });
}

}  // namespace hilbert_ring::emulation
