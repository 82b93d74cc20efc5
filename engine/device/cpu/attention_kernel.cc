#include "engine/device/cpu/attention_kernel.h"

#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/device/cpu/machine.h"

// Kernels keep vectors in arrays, which scalable vectors do not allow.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/device/cpu/attention_kernel.cc"
// foreach_target.h must come first: it compiles everything after it once per target.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "engine/device/cpu/amx_block-inl.h"
#include "engine/device/cpu/amx_tiles-inl.h"
#include "engine/device/cpu/lane_block-inl.h"
#include "engine/device/cpu/product-inl.h"
#if HWY_TARGET != HWY_SCALAR
#include "engine/device/cpu/row_pass-inl.h"
#include "engine/device/cpu/short_pass-inl.h"
#endif
#include "engine/device/cpu/rows-inl.h"
#include "engine/device/cpu/score_change-inl.h"
#include "engine/device/cpu/tile_pass-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace hilbert_ring {
namespace HWY_NAMESPACE {

template <typename BFloat16Product>
void AttendTile(const LaneTile& tile, AttentionScratch& scratch,
                const std::function<bool(int64_t)>& report) {
  if constexpr (!std::is_same_v<BFloat16Product, FloatProduct>) {
    if (tile.task->dtype == DataType::kBFloat16 && BFloat16Product::Takes(*tile.task)) {
      return TilePass<BFloat16Product>(tile, scratch).Attend(report);
    }
  }
  TilePass<FloatProduct>(tile, scratch).Attend(report);
}

using InstructionTilesProduct = TilesProduct<InstructionTiles>;
using EmulatedTilesProduct = TilesProduct<EmulatedTiles>;

TargetKernels Kernels() {
  return {
    .attend = &AttendTile<FloatProduct>,
    .attend_with_pairs = kHasPairInstruction ? &AttendTile<InstructionPairProduct> : nullptr,
    .attend_with_emulated_pairs = &AttendTile<EmulatedPairProduct>,
    .attend_with_tiles = kHasTileInstructions ? &AttendTile<InstructionTilesProduct> : nullptr,
    .attend_with_emulated_tiles = &AttendTile<EmulatedTilesProduct>,
#if HWY_TARGET != HWY_SCALAR
    .rows = &AttendRows<FloatProduct>,
    .rows_with_pairs = kHasPairInstruction ? &AttendRows<InstructionPairProduct> : nullptr,
    .rows_with_emulated_pairs = &AttendRows<EmulatedPairProduct>, .attend_short = &AttendShort,
#endif
    .store_row = &StoreRow, .merge_row = &MergeRow
  };
}

}  // namespace HWY_NAMESPACE
}  // namespace hilbert_ring
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hilbert_ring {
namespace {

HWY_EXPORT(Kernels);

TargetKernels KernelsOf(int64_t target) {
  if (std::size(HWY_DISPATCH_TABLE(Kernels)) == 1) return HWY_DISPATCH_TABLE(Kernels)[0]();
  hwy::ChosenTarget chosen;  // leaves the process's own
  chosen.Update(target);
  return HWY_DISPATCH_TABLE(Kernels)[chosen.GetIndex()]();
}

std::string InstructionsOf(int64_t target) {
  switch (target) {
    case HWY_SCALAR:
    case HWY_EMU128:
      return "portable";
    case HWY_AVX3:
      return "avx512";
    default:
      return absl::AsciiStrToLower(hwy::TargetName(target));
  }
}

}  // namespace

std::vector<CpuKernels> RunnableCpuKernels() {
  std::vector<CpuKernels> runnable;
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();  // the best first
  for (const int64_t target : targets) {
    const std::string instructions = InstructionsOf(target);
    const TargetKernels kernels = KernelsOf(target);
    runnable.push_back({instructions, kernels.attend, kernels.rows, kernels.attend_short,
                        kernels.store_row, kernels.merge_row});
    if (kernels.attend_with_pairs == nullptr || !HasAvx512BFloat16()) continue;
    runnable.push_back({absl::StrCat(instructions, "-bf16"), kernels.attend_with_pairs,
                        kernels.rows_with_pairs, kernels.attend_short, kernels.store_row,
                        kernels.merge_row});
    if (BFloat16PairsAreFaster()) std::swap(runnable.back(), runnable.end()[-2]);
  }
  const TargetKernels best = KernelsOf(targets.front());
  if (best.attend_with_tiles != nullptr && AllowAmxBFloat16()) {
    runnable.insert(runnable.begin(), {"amx-bf16", best.attend_with_tiles, best.rows_with_pairs,
                                       best.attend_short, best.store_row, best.merge_row});
  }
  runnable.push_back({"bf16-emulated", best.attend_with_emulated_pairs,
                      best.rows_with_emulated_pairs, best.attend_short, best.store_row,
                      best.merge_row});
  runnable.push_back({"amx-bf16-emulated", best.attend_with_emulated_tiles,
                      best.rows_with_emulated_pairs, best.attend_short, best.store_row,
                      best.merge_row});
  return runnable;
}

}  // namespace hilbert_ring
#endif  // HWY_ONCE
