// Clocks, peaks and tables of the benchmarks. A shared machine changes from second to second: every
// benchmark runs rounds that measure the peak and every case once, and takes the best of each.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hilbert_ring::bench {

double SecondsOf(const std::function<void()>& work);

// Float32 multiply-adds in registers, with the kernels' instruction set. Takes some milliseconds.
double MultiplyAddGflops(int threads);
std::string MultiplyAddTarget();  // "AVX2"

// "AMD EPYC, AVX2, threads 2".
std::string MachineLine();

// Prints rows of cells as an aligned Markdown table; the first row is the head.
void PrintTable(const std::vector<std::vector<std::string>>& rows);

std::string Number(double value, int digits);

}  // namespace hilbert_ring::bench
