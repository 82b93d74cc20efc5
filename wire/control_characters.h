// Control characters in texts that others have written: in a log a line feed would begin a line
// that nobody logged, and a terminal does what an escape sequence says. Of ASCII, and of Unicode
// U+0080 to U+009F, in UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace hilbert_ring::wire {

// Each as "\n", "\r", "\t", or its bytes as "\x1b".
std::string EscapeControls(std::string_view text);

// Each byte of them becomes '?'. Returns whether there were any.
bool ReplaceControls(std::string& text);

}  // namespace hilbert_ring::wire
