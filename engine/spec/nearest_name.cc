#include "engine/spec/nearest_name.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace hilbert_ring {
namespace {

constexpr size_t kLongestName = 256;  // the distance takes the product of two lengths

std::string Folded(std::string_view name) {
  std::string folded(name.substr(0, kLongestName));
  for (char& c : folded) {
    c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return folded;
}

// Optimal string alignment.
size_t Distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> rows(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        rows[i][j] = i + j;
        continue;
      }
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1,
                             rows[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
  }
  return rows[a.size()][b.size()];
}

}  // namespace

std::string NearestName(std::string_view name, std::span<const std::string> names) {
  const std::string folded = Folded(name);
  size_t least = std::max<size_t>(2, folded.size() / 3) + 1;
  std::string nearest;
  for (const std::string& known : names) {
    const size_t distance = Distance(folded, Folded(known));
    if (distance >= least || distance >= known.size()) continue;
    least = distance;
    nearest = known;
  }
  return nearest;
}

std::string NearestNameHint(std::string_view name, std::span<const std::string> names) {
  const std::string nearest = NearestName(name, names);
  return nearest.empty() ? "" : "; the nearest known one is " + nearest;
}

}  // namespace hilbert_ring
