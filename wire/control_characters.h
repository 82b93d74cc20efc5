// Texts that others have written may be long, and have control characters: in a log a line feed
// would begin a line that nobody logged, and a terminal does what an escape sequence says. Of
// ASCII, and of Unicode U+0080 to U+009F, in UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hilbert_ring::wire {

// Each as "\n", "\r", "\t", or its bytes as "\x1b".
std::string EscapeControls(std::string_view text);

// The text's first bytes where it has more than `most`, and how many it has: "abc... (12 bytes)".
std::string Shortened(std::string_view text, size_t most);

// A text of somebody else's as it may be shown: escaped, then shortened.
std::string Legible(std::string_view text, size_t most = 4096);

// Of JSON, whose strings may hold U+007F to U+009F as they are: those as "\u009b".
std::string PrintableJson(std::string_view json);

// Each byte of them becomes '?'. Returns whether there were any.
bool ReplaceControls(std::string& text);

}  // namespace hilbert_ring::wire
