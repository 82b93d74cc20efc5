// A worker's shard as the source of its outputs.
#pragma once

#include "engine/run/shard_store.h"
#include "server/shard/output_rows.h"

namespace hilbert_ring::server {

// The store outlives the source. Rows in a device's memory are copied to host memory that is used
// again with the next read; others are read where they are.
OutputSource SourceOf(const ShardStore& store);

}  // namespace hilbert_ring::server
