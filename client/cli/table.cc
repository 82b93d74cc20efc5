#include "client/cli/table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "wire/control_characters.h"

namespace hilbert_ring::cli {
namespace {

// Bytes of a cell, at most: the widest cell pads its whole column.
constexpr size_t kMostOfCell = 200;

template <size_t kUnits>
std::string Scaled(double value, double base, const std::array<std::string_view, kUnits>& units) {
  size_t unit = 0;
  while (std::abs(value) >= base && unit + 1 < kUnits) {
    value /= base;
    ++unit;
  }
  if (!(std::abs(value) < 1e6)) return absl::StrFormat("%.3g %s", value, units[unit]);
  if (unit == 0) return absl::StrFormat("%.0f %s", value, units[unit]);
  return absl::StrFormat("%.*f %s", std::abs(value) < 10 ? 2 : 1, value, units[unit]);
}

}  // namespace

std::string FormatTable(std::vector<std::vector<std::string>> rows) {
  for (std::vector<std::string>& row : rows) {
    for (std::string& cell : row) cell = wire::Shortened(wire::EscapeControls(cell), kMostOfCell);
  }
  std::vector<size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      absl::StrAppend(&line, i > 0 ? "  " : "", i > 0 ? space : "", row[i], i > 0 ? "" : space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

std::string FormatBytes(double bytes) {
  return Scaled<7>(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"});
}

std::string FormatBytes(int64_t bytes) { return FormatBytes(static_cast<double>(bytes)); }

std::string FormatFlops(double flops) {
  return Scaled<8>(flops, 1000,
                   {"flop", "kflop", "Mflop", "Gflop", "Tflop", "Pflop", "Eflop", "Zflop"});
}

std::string FormatCount(int64_t count) {
  std::string digits = absl::StrCat(count);
  const size_t first = digits[0] == '-' ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string FormatRate(double rate) {
  if (!(std::abs(rate) < 1e15)) return absl::StrFormat("%.3g", rate);
  return FormatCount(static_cast<int64_t>(rate));
}

std::string FormatSeconds(double seconds) {
  if (!(std::abs(seconds) < 1e15)) return absl::StrFormat("%.3g s", seconds);
  if (seconds < 1) return absl::StrFormat("%.1f ms", seconds * 1e3);
  if (seconds < 100) return absl::StrFormat("%.2f s", seconds);
  const int64_t whole = std::llround(seconds);
  return absl::StrCat(whole / 60, " min ", whole % 60, " s");
}

std::string FormatPercent(double part, double whole) {
  return whole == 0 ? "-" : absl::StrFormat("%.1f %%", 100 * part / whole);
}

}  // namespace hilbert_ring::cli
