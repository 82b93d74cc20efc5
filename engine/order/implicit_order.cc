#include "engine/order/implicit_order.h"

#include <algorithm>
#include <cassert>

#include "engine/order/curve_machine.h"

namespace hilbert_ring {
namespace {

// A square of 2^level cells a side.
struct Quadrant {
  Cell origin;
  int level = 0;
  uint32_t state = CurveMachine::kStart;
  int64_t side() const { return int64_t{1} << level; }
};

// The rest of a walk: skip `skip` existing cells, then write tokens.
struct Walk {
  int64_t skip = 0;
  int64_t* next = nullptr;
  int64_t* end = nullptr;
};

class ImplicitOrder : public Permutation {
 public:
  ImplicitOrder(Curve curve, const CellRegion& region)
      : region_(region),
        machine_(CurveMachine::Of(curve, region.axes)),
        block_level_(machine_.step().levels),
        block_cells_(int64_t{1} << machine_.step().width) {}

  int64_t resident_bytes() const override { return sizeof(*this); }

  void Tokens(int64_t first_slot, std::span<int64_t> tokens) const override {
    Walk walk = {first_slot, tokens.data(), tokens.data() + tokens.size()};
    if (walk.next != walk.end) WriteTokens(Whole(), region_.size(), walk);
    assert(walk.next == walk.end);
  }

  void Slots(int64_t first_token, std::span<int64_t> slots) const override {
    const auto count = static_cast<int64_t>(slots.size());
    for (int64_t done = 0; done < count;) {
      // Tokens of one row of a block share the descent to it.
      const Cell cell = region_.CellOfToken(first_token + done);
      const Located block = Descend({Whole(), 0}, cell, std::min(block_level_, region_.bits));
      const auto row_end = std::min(
          static_cast<int64_t>(block.quadrant.origin.x) + block.quadrant.side(), region_.cols);
      const int64_t run = std::min(count - done, row_end - static_cast<int64_t>(cell.x));
      WriteSlots(block, cell, slots.subspan(done, run));
      done += run;
    }
  }

 private:
  // A quadrant and the slot of its first existing cell.
  struct Located {
    Quadrant quadrant;
    int64_t first_slot = 0;
  };

  Quadrant Whole() const { return {.level = region_.bits}; }

  // The curve's quadrant number `digit` in `parent`.
  Quadrant Child(const Quadrant& parent, uint32_t digit) const {
    const StepTable& table = machine_.level();
    const uint32_t entry = table.entry_of_key(parent.state, digit);
    Quadrant child = {parent.origin, parent.level - 1, entry >> table.width};
    child.origin.x += static_cast<uint64_t>(entry & 1) << child.level;
    child.origin.y += static_cast<uint64_t>(entry >> 1 & 1) << child.level;
    if (region_.axes == 3) child.origin.z += static_cast<uint64_t>(entry >> 2 & 1) << child.level;
    return child;
  }

  int64_t Count(const Quadrant& quadrant) const {
    return region_.Count(quadrant.origin, quadrant.side());
  }

  // Returns whether a quadrant is a block of one step without missing cells.
  bool IsFullBlock(const Quadrant& quadrant, int64_t cells) const {
    return quadrant.level == block_level_ && cells == block_cells_;
  }

  // The quadrant of `level` in `from` that holds a cell.
  Located Descend(Located from, const Cell& cell, int level) const {
    while (from.quadrant.level > level) {
      const int bit = from.quadrant.level - 1;
      const uint32_t child_cell = static_cast<uint32_t>(
          (cell.x >> bit & 1) | (cell.y >> bit & 1) << 1 | (cell.z >> bit & 1) << 2);
      const StepTable& table = machine_.level();
      const uint32_t own = table.entry_of_cell(from.quadrant.state, child_cell) & table.mask();
      for (uint32_t digit = 0; digit < own; ++digit) {
        from.first_slot += Count(Child(from.quadrant, digit));
      }
      from.quadrant = Child(from.quadrant, own);
    }
    return from;
  }

  // Writes slots of cells in one row of a block, from `cell` on.
  void WriteSlots(const Located& block, Cell cell, std::span<int64_t> slots) const {
    if (!IsFullBlock(block.quadrant, Count(block.quadrant))) {
      for (int64_t& slot : slots) {
        slot = Descend(block, cell, 0).first_slot;
        ++cell.x;
      }
      return;
    }
    const StepTable& table = machine_.step();
    const uint64_t axis_mask = (uint64_t{1} << block_level_) - 1;
    uint32_t bits =
        static_cast<uint32_t>((cell.x & axis_mask) | (cell.y & axis_mask) << block_level_ |
                              (cell.z & axis_mask) << (2 * block_level_));
    for (int64_t& slot : slots) {
      slot = block.first_slot + (table.entry_of_cell(block.quadrant.state, bits++) & table.mask());
    }
  }

  // Writes a quadrant's tokens. `cells` is Count(quadrant) and exceeds walk.skip.
  void WriteTokens(const Quadrant& quadrant, int64_t cells, Walk& walk) const {
    if (IsFullBlock(quadrant, cells)) return WriteBlock(quadrant, walk);
    if (quadrant.level == 0) {
      *walk.next++ = region_.TokenOfCell(quadrant.origin);
      return;
    }
    for (uint32_t digit = 0; digit <= machine_.level().mask() && walk.next != walk.end; ++digit) {
      const Quadrant child = Child(quadrant, digit);
      const int64_t child_cells = Count(child);
      if (child_cells > walk.skip) {
        WriteTokens(child, child_cells, walk);
      } else {
        walk.skip -= child_cells;
      }
    }
  }

  void WriteBlock(const Quadrant& block, Walk& walk) const {
    const StepTable& table = machine_.step();
    const int64_t first = region_.TokenOfCell(block.origin);
    const int64_t count = std::min(block_cells_ - walk.skip, walk.end - walk.next);
    const int64_t axis_mask = (int64_t{1} << block_level_) - 1;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t cell =
          table.entry_of_key(block.state, static_cast<uint32_t>(walk.skip + i)) & table.mask();
      const int64_t x = cell & axis_mask, y = cell >> block_level_ & axis_mask;
      const int64_t z = cell >> (2 * block_level_);
      walk.next[i] = first + (z * region_.rows + y) * region_.cols + x;
    }
    walk.next += count;
    walk.skip = 0;
  }

  const CellRegion region_;
  const CurveMachine& machine_;
  const int block_level_;
  const int64_t block_cells_;
};

}  // namespace

std::unique_ptr<const Permutation> MakeImplicitOrder(Curve curve, const CellRegion& region) {
  assert(region.size() >= 1);
  return std::make_unique<const ImplicitOrder>(curve, region);
}

}  // namespace hilbert_ring
