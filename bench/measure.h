// Clocks, peaks and tables of the benchmarks.
//
//   const double peak = MultiplyAddGflops(threads);   // the arithmetic's limit now
//   const double seconds = SecondsOf([&] { ... });    // the time of the work now
//
// A shared machine changes both from second to second. Every benchmark therefore runs rounds that
// measure the peak and every case once, and takes the best round of each.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hilbert_ring::bench {

double SecondsOf(const std::function<void()>& work);

// Rate of float32 multiply-adds in registers, two operations each, with the kernels' instruction
// set. Takes some milliseconds.
double MultiplyAddGflops(int threads);
std::string MultiplyAddTarget();  // "AVX2"

// "AMD EPYC, AVX2, threads 2".
std::string MachineLine();

// Prints rows of cells as an aligned Markdown table; the first row is the head.
void PrintTable(const std::vector<std::vector<std::string>>& rows);

std::string Number(double value, int digits);

}  // namespace hilbert_ring::bench
