// A dense attention task over a few rows with values of the test, and its float64 results.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/device/attention.h"
#include "engine/device/device.h"
#include "tests/unit/device/defined_row.h"

namespace hilbert_ring {

struct ValueTask {
  ValueTask(DataType dtype, int64_t queries, int64_t keys, int64_t head_dim, int64_t value_dim);

  // These round to the task's type, like tensors.
  void SetQ(int64_t i, int64_t x, double value) { q[i * head_dim + x] = Rounded(value); }
  void SetK(int64_t j, int64_t x, double value) { k[j * head_dim + x] = Rounded(value); }
  void SetV(int64_t j, int64_t x, double value) { v[j * value_dim + x] = Rounded(value); }

  bool Sees(int64_t query, int64_t key) const { return !causal || key <= query; }

  DataType dtype;
  int64_t queries, keys, head_dim, value_dim;
  std::vector<float> q, k, v;  // [rows, dim], numbers of dtype
  float scale = 1.0f;
  bool causal = false;

 private:
  float Rounded(double value) const;
};

// A weight's rounding by a kernel (DeviceInfo's name) that rounds weights to 16 bits; else 0.
double WeightRoundingOf(const std::string& kernel, DataType dtype);

struct ValueResult {
  std::vector<float> out;  // [queries, value_dim]
  std::vector<float> lse;  // [queries]
};

// Attend runs one task that writes. AttendInParts merges parts of keys that end at `ends`.
ValueResult Attend(Device& device, const ValueTask& task);
ValueResult AttendInParts(Device& device, const ValueTask& task, const std::vector<int64_t>& ends);

DefinedRow Expect(const ValueTask& task, int64_t query);

}  // namespace hilbert_ring
