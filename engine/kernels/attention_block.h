// A few query rows of one sequence against the keys of one kv head: the unit of work of cpu::attention. Every query row
// goes through the same operations whatever rows stand beside it: keys in tiles of 64 by absolute position, one chain
// of multiply-adds a score and an output, and a partial result per segment of kSegment positions, merged ascending.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/kernels/ops.h"

namespace hayfork::engine::cpu {

constexpr int64_t kSegment = 512;  // positions a partial result: a long context of few rows is shared among threads so

// Rows [begin, end) of the pass: one sequence, one stream, ascending positions.
struct QueryBlock {
  int64_t begin = 0, end = 0;
  int64_t kv_head = 0;
  int64_t window = 0;           // 0: all keys
  int64_t first = 0, last = 0;  // positions any of the rows sees
};

// Softmax state of a block's queries, ordered by row, then head.
struct PartialOutput {
  float* max;   // [queries]
  float* sums;  // [queries][16]
  float* o;     // [queries][v_dim padded to 16]
};

struct AttentionCall {
  const Pass& pass;
  Matrix o, q;
  const KvLayer& layer;
  const AttentionParams& params;

  int64_t heads() const { return params.n_heads / layer.n_kv_heads; }  // query heads a kv head
  int64_t v_width() const { return (layer.v_dim + 15) / 16 * 16; }
  // Rows a block may have: about 96 queries, so that its state stays in L2 beside a tile of keys and values.
  int64_t rows_a_block() const;
  size_t partial_bytes() const;  // multiple of 64
  PartialOutput partial_at(void* memory) const;
  size_t worker_bytes() const;  // multiple of 64
};

// total = total and next, in this order.
void merge(const AttentionCall& call, const QueryBlock& block, PartialOutput total, PartialOutput next);
// Adds the sinks, divides, writes the block's rows of o.
void finish(const AttentionCall& call, const QueryBlock& block, PartialOutput total);

// One thread's buffers.
class BlockWorker {
 public:
  BlockWorker(const AttentionCall& call, void* memory);  // worker_bytes(), 64-byte aligned

  void start(const QueryBlock& block);              // gathers the queries
  void attend(int64_t segment, PartialOutput out);  // the started block against positions of one segment

 private:
  struct Span {  // what a row sees of the tile: keys [begin, end)
    int64_t begin, end;
  };
  Span span_of(int64_t row, int64_t tile) const;
  void attend_tile(int64_t tile, PartialOutput out);
  void fetch(int64_t tile) const;
  void score(int64_t at, int64_t first_query, int64_t m, int64_t end);
  void soften(int64_t tile, int64_t row, int64_t rows, bool masked, PartialOutput out);
  void weigh(int64_t at, int64_t first_query, int64_t m, Span keys, bool whole, PartialOutput out);
  bool copy_values(int64_t at, Span keys);
  void multiply_values(int64_t first_query, int64_t first_p, int64_t m, const void* values, int64_t stride, int64_t end,
                       PartialOutput out);

  const AttentionCall& call_;
  QueryBlock block_;
  bool bf16_;
  int64_t q_stride_;  // elements between queries
  // Queries in the type of the cache, scores, rounded weights, a tile of values, what each query sees of the tile.
  void* q_;
  float* s_;
  bf16* p_;
  void* values_;
  int32_t* begin_;
  int32_t* end_;
};

}  // namespace hayfork::engine::cpu
