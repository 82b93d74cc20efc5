// Strict values of flags, environment variables and configuration files. A number has decimal
// digits; a truth value is true or false.
//
//   option->transform(CLI::Validator(wire::WrongWholeNumber, ""));   // before the range is checked
//
// Each function returns the error of a text; empty: the text is valid.
#pragma once

#include <string>

namespace hilbert_ring::wire {

// Accepts 64-bit integers. Removes leading zeros, because CLI11 would read octal digits.
std::string WrongWholeNumber(std::string& text);

// Accepts finite numbers: "0.5", "1e9".
std::string WrongNumber(const std::string& text);

std::string WrongTruthValue(const std::string& text);

// Accepts bytes, or a number with a suffix of CLI11's AsSizeValue: "512MiB". Replaces the text by
// the number of bytes, 0 to 2^62.
std::string WrongByteCount(std::string& text);

}  // namespace hilbert_ring::wire
