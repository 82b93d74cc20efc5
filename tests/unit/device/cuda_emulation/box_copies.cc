#include "tests/unit/device/cuda_emulation/box_copies.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "tests/unit/device/cuda_emulation/block_barriers.h"
#include "tests/unit/device/cuda_emulation/block_runner.h"
#include "tests/unit/device/cuda_emulation/tensor_map_bytes.h"

namespace hilbert_ring::emulation {
namespace {

constexpr size_t kPieceBytes = 16;       // unit of the permutation
constexpr size_t kPermutedAlign = 1024;  // of a box whose rows are permuted within 128 bytes

struct Box {
  std::byte* to;
  size_t bytes;
  TensorMapBytes map;
  void* barrier;
  int64_t at[3];
};

struct Boxes {
  uint64_t block = 0;
  std::vector<Box> under_way;
  std::set<std::pair<int, const void*>> acquired;  // by thread
};

// Boxes of the block that the system thread runs.
Boxes& OfBlock() {
  thread_local Boxes boxes;
  if (boxes.block != BlockNumber()) {
    boxes = {};
    boxes.block = BlockNumber();
  }
  return boxes;
}

// The place of `shared` in the memory that products see.
std::byte* Published(const std::byte* shared) {
  return PublishedBytes() + (shared - SharedBytes());
}

// Makes shared memory and the products' view differ: no thread may read it.
void Spoil(const Box& box) {
  std::memset(box.to, 0xff, box.bytes);
  std::memset(Published(box.to), 0, box.bytes);
}

// Copies a piece of 16 bytes of a row of the box, or zeros outside of the tensor.
void CopyPiece(const Box& box, int64_t batch, int64_t row, size_t piece, std::byte* to) {
  const TensorMapBytes& map = box.map;
  const int64_t element = map.element_bytes;
  const int64_t x = box.at[0] + static_cast<int64_t>(piece * kPieceBytes) / element;
  std::memset(to, 0, kPieceBytes);
  if (row < 0 || row >= map.size[1] || batch < 0 || batch >= map.size[2]) return;
  for (int64_t i = 0; i < static_cast<int64_t>(kPieceBytes) / element; ++i) {
    if (x + i < 0 || x + i >= map.size[0]) continue;
    std::memcpy(to + i * element,
                map.data + (x + i) * element + row * map.stride[0] + batch * map.stride[1],
                static_cast<size_t>(element));
  }
}

void Arrive(const Box& box) {
  const size_t row_bytes = static_cast<size_t>(box.map.box[0] * box.map.element_bytes);
  size_t row = 0;
  for (int64_t b = 0; b < box.map.box[2]; ++b) {
    for (int64_t r = 0; r < box.map.box[1]; ++r, ++row) {
      for (size_t piece = 0; piece < row_bytes / kPieceBytes; ++piece) {
        // Bits 7 to 9 of the address permute bits 4 to 6.
        size_t at = row * row_bytes + piece * kPieceBytes;
        if (box.map.permuted) at ^= (at >> 7 & 7) << 4;
        CopyPiece(box, box.at[2] + b, box.at[1] + r, piece, box.to + at);
      }
    }
  }
  std::memcpy(Published(box.to), box.to, box.bytes);
  BringBytes(box.barrier, static_cast<int64_t>(box.bytes));
}

}  // namespace

void AcquireTensorMap(const cuda::TensorMap* map) {
  OfBlock().acquired.emplace(ThreadOfBlock(), map);
}

void CopyBoxLater(void* shared, const cuda::TensorMap* map, void* barrier, int x, int row,
                  int batch) {
  Boxes& boxes = OfBlock();
  if (!boxes.acquired.contains({ThreadOfBlock(), map})) Fail("a tensor map was not acquired");
  if (reinterpret_cast<uintptr_t>(map) % alignof(cuda::TensorMap) != 0) {
    Fail("a tensor map is not aligned");
  }
  CheckBoxBarrier(barrier);
  Box box{.to = static_cast<std::byte*>(shared),
          .map = BytesOf(*map),
          .barrier = barrier,
          .at = {x, row, batch}};
  box.bytes =
      static_cast<size_t>(box.map.box[0] * box.map.box[1] * box.map.box[2] * box.map.element_bytes);
  const auto at = box.to - SharedBytes();
  if (at < 0 || static_cast<size_t>(at) % kPermutedAlign != 0 ||
      static_cast<size_t>(at) + box.bytes > SharedSize()) {
    Fail("a box does not lie in shared memory, or is not aligned there");
  }
  for (const Box& other : boxes.under_way) {
    if (box.to < other.to + other.bytes && other.to < box.to + box.bytes) {
      Fail("two copies are on their way to one place");
    }
  }
  Spoil(box);
  boxes.under_way.push_back(box);
}

bool BringBox() {
  std::vector<Box>& under_way = OfBlock().under_way;
  if (under_way.empty()) return false;
  const auto next = BlockNumber() % 2 == 0 ? under_way.begin() : under_way.end() - 1;
  const Box box = *next;
  under_way.erase(next);
  Arrive(box);
  return true;
}

void HideBoxesUnderWay() {
  for (const Box& box : OfBlock().under_way) Spoil(box);
}

void CheckBoxesAtEnd() {
  if (!OfBlock().under_way.empty()) Fail("a block ended before its boxes arrived");
}

}  // namespace hilbert_ring::emulation
