#include "wire/flag_values.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace hilbert_ring::wire {
namespace {

constexpr uint64_t kMostSizeBytes = uint64_t{1} << 62;

// Returns the power of 1024 ("k", "kb", "ki" and "kib": 1), 0 for "" and "b", -1 for others.
int PowerOf(absl::string_view suffix) {
  const std::string unit = absl::AsciiStrToLower(suffix);
  if (unit.empty() || unit == "b") return 0;
  const size_t power = std::string_view("kmgtpe").find(unit.front());
  const std::string rest = unit.substr(1);
  if (power == std::string_view::npos ||
      !(rest.empty() || rest == "b" || rest == "i" || rest == "ib")) {
    return -1;
  }
  return static_cast<int>(power) + 1;
}

}  // namespace

std::string WrongWholeNumber(std::string& text) {
  const bool negative = text.starts_with("-");
  const std::string digits = text.substr(negative ? 1 : 0);
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit)) {
    return absl::StrCat(text, ", must be a whole number in decimal digits");
  }
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) return absl::StrCat(text, " is beyond 64 bits");
  text = absl::StrCat(value);
  return "";
}

std::string WrongNumber(const std::string& text) {
  double value = 0;
  // Abseil also reads hexadecimal digits.
  const bool decimal = text.find_first_not_of("0123456789+-.eE") == std::string::npos;
  if (decimal && absl::SimpleAtod(text, &value) && std::isfinite(value)) return "";
  return absl::StrCat(text, ", must be a finite number in decimal digits");
}

std::string WrongTruthValue(const std::string& text) {
  if (text == "true" || text == "false") return "";
  return absl::StrCat(text, ", must be true or false");
}

std::string WrongByteCount(std::string& text) {
  const auto end = std::find_if_not(text.begin(), text.end(), absl::ascii_isdigit);
  const std::string digits(text.begin(), end);
  const int power = PowerOf(absl::StripAsciiWhitespace(std::string(end, text.end())));
  if (digits.empty() || power < 0) {
    return absl::StrCat(text,
                        ", must be a number of bytes in decimal digits, or one with a suffix "
                        "like 512MiB or 16GiB");
  }
  uint64_t bytes = 0;
  if (!absl::SimpleAtoi(digits, &bytes) || bytes > kMostSizeBytes >> (10 * power)) {
    return absl::StrCat(text, ", must be at most 4EiB");
  }
  text = absl::StrCat(bytes << (10 * power));
  return "";
}

}  // namespace hilbert_ring::wire
