#include "wire/control_characters.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::wire {
namespace {

size_t ControlBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x20 || byte(0) == 0x7f) return 1;
  const bool of_unicode = text.size() > 1 && byte(0) == 0xc2 && byte(1) >= 0x80 && byte(1) < 0xa0;
  return of_unicode ? 2 : 0;
}

// Returns the first control character at or after `at`, or the empty end of the text.
std::string_view NextControl(std::string_view text, size_t at) {
  for (; at < text.size(); ++at) {
    if (const size_t bytes = ControlBytes(text.substr(at)); bytes > 0)
      return text.substr(at, bytes);
  }
  return text.substr(text.size());
}

void AppendEscaped(std::string& to, char c) {
  switch (c) {
    case '\n':
      to.append("\\n");
      break;
    case '\r':
      to.append("\\r");
      break;
    case '\t':
      to.append("\\t");
      break;
    default:
      absl::StrAppend(&to, "\\x", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
  }
}

}  // namespace

std::string EscapeControls(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const std::string_view control = NextControl(text, at);
    const size_t begin = control.data() - text.data();
    escaped.append(text, at, begin - at);
    for (const char c : control) AppendEscaped(escaped, c);
    at = begin + control.size();
  }
  return escaped;
}

std::string Shortened(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  size_t end = most;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;  // not within a character
  return absl::StrCat(absl::string_view(text.data(), end), "... (", text.size(), " bytes)");
}

std::string Legible(std::string_view text, size_t most) {
  return Shortened(EscapeControls(text), most);
}

std::string PrintableJson(std::string_view json) {
  std::string printable;
  for (size_t at = 0; at < json.size();) {
    const bool is_space = json[at] == '\n' || json[at] == '\r' || json[at] == '\t';
    const size_t bytes = is_space ? 0 : ControlBytes(json.substr(at));
    if (bytes == 0) {
      printable.push_back(json[at++]);
      continue;
    }
    const auto point = static_cast<unsigned char>(json[at + bytes - 1]);
    absl::StrAppend(&printable, "\\u", absl::Hex(point, absl::kZeroPad4));
    at += bytes;
  }
  return printable;
}

bool ReplaceControls(std::string& text) {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const std::string_view control = NextControl(text, at);
    const size_t begin = control.data() - text.data();
    std::fill_n(text.begin() + static_cast<std::ptrdiff_t>(begin), control.size(), '?');
    any = any || !control.empty();
    at = begin + control.size();
  }
  return any;
}

}  // namespace hilbert_ring::wire
