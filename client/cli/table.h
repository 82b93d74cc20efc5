// Text for people: aligned tables, and numbers with units.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hilbert_ring::cli {

// Escapes control characters of cells and shortens cells of more than 200 bytes. Columns are as
// wide as their widest cell, two spaces apart; the first is aligned left, the others right. rows[0]
// is the heading. Rows may differ in length.
std::string FormatTable(std::vector<std::vector<std::string>> rows);

std::string FormatBytes(double bytes);  // "1.50 GiB"
std::string FormatBytes(int64_t bytes);
std::string FormatFlops(double flops);                 // "2.15 Tflop"
std::string FormatCount(int64_t count);                // "1,048,576"
std::string FormatRate(double rate);                   // "1,048,576" a second
std::string FormatSeconds(double seconds);             // "12.3 ms", "4.56 s", "2 min 5 s"
std::string FormatPercent(double part, double whole);  // "12.5 %"; "-" for a whole of 0

}  // namespace hilbert_ring::cli
