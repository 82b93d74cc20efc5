#include "server/job/pooled_parts.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring::server {

std::vector<int64_t> PooledRowsOf(const SlideRows& slides, Pooling pooling,
                                  std::span<const ShardRange> ranges) {
  std::vector<int64_t> rows(slides.slides());
  for (const ShardRange& range : ranges) {
    for (int64_t slide = slides.SlideOf(range.begin);
         slide < slides.slides() && slides.FirstToken(slide) < range.end; ++slide) {
      const int64_t first = slides.FirstToken(slide), tiles = first + slides.class_tokens();
      const int64_t begin = pooling == Pooling::kClass ? first : tiles;
      const int64_t end = pooling == Pooling::kClass ? tiles : slides.FirstToken(slide + 1);
      rows[slide] += std::max<int64_t>(0, std::min(end, range.end) - std::max(begin, range.begin));
    }
  }
  return rows;
}

absl::Status PooledParts::Add(int rank, int64_t state, PooledPart part) {
  const MutexLock lock(mutex_);
  int64_t& numbers = numbers_[rank];
  numbers += std::ssize(part.sums) + std::ssize(part.rows);
  if (numbers > most_numbers_) {
    return absl::InternalError(absl::StrCat(
        "a worker sent ", numbers, " numbers of pooled sums, the job has ", most_numbers_));
  }
  parts_[{state, rank}].push_back(std::move(part));
  return absl::OkStatus();
}

std::string PooledParts::WrongOf(int rank, int64_t state, std::span<const int64_t> rows) const {
  const MutexLock lock(mutex_);
  const int64_t slides = std::ssize(rows);
  std::vector<int64_t> to_come(rows.begin(), rows.end());
  const auto of_rank = parts_.find({state, rank});
  if (of_rank != parts_.end()) {
    for (const PooledPart& part : of_rank->second) {
      const int64_t added = std::ssize(part.rows);
      if (part.first_slide < 0 || part.first_slide > slides || added > slides - part.first_slide) {
        return absl::StrCat("sent pooled sums of ", added, " slides from slide ", part.first_slide,
                            " on, the job has ", slides);
      }
      for (int64_t i = 0; i < added; ++i) {
        int64_t& most = to_come[part.first_slide + i];
        if (part.rows[i] < 0 || part.rows[i] > most) {
          return absl::StrCat("sent pooled sums of ", part.rows[i], " rows of slide ",
                              part.first_slide + i, ", must be 0 to ", most);
        }
        most -= part.rows[i];
      }
    }
  }
  const auto left = std::ranges::find_if(to_come, [](int64_t missing) { return missing > 0; });
  if (left == to_come.end()) return "";
  return absl::StrCat("sent no pooled sums of ", *left, " of its rows of slide ",
                      left - to_come.begin());
}

absl::Status PooledParts::AddTo(int64_t state, SlidePool& pool) const {
  const MutexLock lock(mutex_);
  for (const auto& [key, parts] : parts_) {
    if (key.first != state) continue;
    for (const PooledPart& part : parts) RETURN_IF_ERROR(pool.Add(part));
  }
  return absl::OkStatus();
}

void PooledParts::Clear() {
  const MutexLock lock(mutex_);
  numbers_.clear();
  parts_.clear();
}

}  // namespace hilbert_ring::server
