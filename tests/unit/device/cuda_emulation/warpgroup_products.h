// Asynchronous products of a warpgroup's 128 threads
// (include/engine/device/cuda/kernels/warpgroup.cuh).
//
// They are computed as late as the machine allows: when a thread awaits them, from the registers
// and shared memory of that moment. A kernel that changes either before has wrong results. Threads
// must have published the operands that they wrote, with a barrier of the block since.
#pragma once

#include <cstdint>

namespace hilbert_ring::emulation {

// A thread's part of sums [64, columns] = or += a [64, 16] x b [16, columns].
struct Product {
  float* sums = nullptr;  // [columns / 8][4]
  int columns = 0;
  bool add = true;
  float (*to_float)(uint16_t bits) = nullptr;
  // The left side: 4 registers of two elements, or the descriptor of shared rows of a.
  const uint32_t* left = nullptr;
  uint64_t left_matrix = 0;
  // The right side's descriptor: shared rows are columns of b, or rows of it.
  uint64_t right_matrix = 0;
  bool rows_are_columns = false;
};

// The address of `shared` in shared memory, whose first address is not 0.
uint32_t AddressOf(const void* shared);

// The thread may start products until it waits.
void BeginProducts();
void StartProduct(const Product& product);
void CommitProducts();

// Computes all but the `left` latest batches of the thread's warpgroup.
void AwaitProducts(int left);

}  // namespace hilbert_ring::emulation
