// What the benchmarks measure with, and what they measure against.
//
//   const double peak = MultiplyAddGflops(threads);   // what the arithmetic could do, now
//   const double seconds = SecondsOf([&] { ... });    // what the work took, now
//
// On a machine that others use too, both change from second to second. So every benchmark runs in
// rounds that measure the peak and every case once, and takes the best round of each.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hilbert_ring::bench {

double SecondsOf(const std::function<void()>& work);

// Multiply-adds of float32 in registers alone, two operations each, with the instruction set that
// the processor's kernels use. Takes some milliseconds.
double MultiplyAddGflops(int threads);
std::string MultiplyAddTarget();  // "AVX2"

// "AMD EPYC, AVX2, threads 2".
std::string MachineLine();

// Rows of cells as a Markdown table whose columns are aligned; the first row is the head.
void PrintTable(const std::vector<std::vector<std::string>>& rows);

std::string Number(double value, int digits);

}  // namespace hilbert_ring::bench
