// Values of flags, environment variables and configuration files, which are never guessed: a number
// has decimal digits, and a truth value is true or false.
//
//   option->transform(CLI::Validator(wire::WrongWholeNumber, ""));   // before the range is checked
//
// Each function says what is wrong with a text; empty: it is such a value.
#pragma once

#include <string>

namespace hilbert_ring::wire {

// Leading zeros are taken away, since CLI11 reads octal digits behind them. Of 64 bits.
std::string WrongWholeNumber(std::string& text);

// Finite; "0.5", "1e9".
std::string WrongNumber(const std::string& text);

std::string WrongTruthValue(const std::string& text);

// Bytes, or with a suffix as CLI11's AsSizeValue has it: "512MiB". The text is then the number of
// bytes, 0 to 2^62.
std::string WrongByteCount(std::string& text);

}  // namespace hilbert_ring::wire
