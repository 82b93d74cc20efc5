// Makes foreign texts safe to log and print. They may be long and have control characters: a line
// feed forges a line of a log, and a terminal executes escape sequences. Control characters are
// those of ASCII, and U+0080 to U+009F in UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hilbert_ring::wire {

// Writes each as "\n", "\r", "\t", or its bytes as "\x1b".
std::string EscapeControls(std::string_view text);

// Returns the first bytes of a text of more than `most`, with its length: "abc... (12 bytes)".
std::string Shortened(std::string_view text, size_t most);

std::string Legible(std::string_view text, size_t most = 4096);

// Writes U+007F to U+009F, which JSON's strings may contain, as "\u009b".
std::string PrintableJson(std::string_view json);

// Replaces each of their bytes by '?'. Returns whether the text had any.
bool ReplaceControls(std::string& text);

}  // namespace hilbert_ring::wire
