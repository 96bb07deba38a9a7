// Keys, values and recurrent states of the sequences in flight. Blocks of kBlockTokens positions, shared copy-on-write
// between sequences; knows no model and no request. Layers whose window is equal share one block table (a group), so
// that blocks behind a window can be freed. Not thread-safe: the scheduler is its only user.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/context.h"
#include "engine/rows.h"
#include "engine/tensor.h"

namespace hayfork::engine {

constexpr int32_t kBlockTokens = 64;

// What a layer keeps. Given by its mixer.
struct StateSpec {
  int32_t n_kv_heads = 0, k_dim = 0, v_dim = 0;  // 0 heads: no K/V
  int32_t window = 0;       // > 0: every reader of this layer looks at most this far back (current token included)
  int64_t state_bytes = 0;  // recurrent state per sequence, 0: none
  int32_t base_window = 0;  // > 0: base rows look at most this far back, output rows may look further
};

// One layer's K/V storage: k is [n_blocks][n_kv_heads][kBlockTokens · k_dim], v likewise with v_dim; bf16 or f32. The
// order of the elements of one block and head is the backend's own (the CPU keeps K transposed), so blocks are copied
// whole, and read with kv_read() of ops.h.
struct KvLayer {
  void* k = nullptr;
  void* v = nullptr;
  DType dtype = DType::f32;
  int32_t n_kv_heads = 0, k_dim = 0, v_dim = 0;
  int32_t group = 0;  // which block table of SeqView
};

using SeqId = int32_t;

class Cache {
 public:
  // `n_blocks` in each window group; `n_sequences` bounds the recurrent state slots. Throws: resource.
  Cache(Context& context, std::vector<StateSpec> layers, DType kv_dtype, int32_t n_blocks, int32_t n_sequences);
  // The same with a number of blocks for each group of windows(layers), in that order.
  Cache(Context& context, std::vector<StateSpec> layers, DType kv_dtype, std::span<const int32_t> n_blocks,
        int32_t n_sequences);
  // With `n_parked` blocks more in the only group there is, in slower memory (Context::make_parked_buffer): when the
  // others are taken, a sequence's oldest blocks move there, behind what its base rows still read. Requires: one group.
  Cache(Context& context, std::vector<StateSpec> layers, DType kv_dtype, int32_t n_blocks, int32_t n_parked,
        int32_t n_sequences);
  ~Cache();

  SeqId create();
  // A new sequence that shares positions [0, length) of `parent` (and its recurrent state, which must stand at
  // `length`).
  SeqId fork(SeqId parent, int32_t length);
  // Forgets positions ≥ length. Recurrent layers: only to a length a snapshot exists for (HAY_CHECK).
  void truncate(SeqId seq, int32_t length);
  void release(SeqId seq);
  // Makes positions [length(seq), new_length) writable: allocates blocks, copies a shared last block, and drops blocks
  // that a position ≥ length(seq) can't see any more through its group's window. False when blocks are short; nothing
  // is changed then.
  bool extend(SeqId seq, int32_t new_length);
  int32_t length(SeqId seq) const;
  // Blocks extend() would have to allocate in the group that needs most, the copy of a shared tail included.
  int32_t blocks_needed(SeqId seq, int32_t new_length) const;
  int32_t free_blocks() const;     // of the group that has fewest
  int32_t held_blocks() const;     // taken, over all groups
  int32_t live_sequences() const;  // created or forked, and not released
  bool windowed() const;           // some group frees blocks behind its window
  int32_t free_sequences() const;  // state slots left; INT32_MAX without recurrent state

  // Blocks apart from sequences: hold() keeps block `index` (positions index·kBlockTokens …) of a sequence in every
  // group; append() gives its first n positions to another that ends in or just before them, in place of what that has
  // of them; copy_in() copies it into the last block of another, which must be its own and keeps that beginning once it
  // is written again; drop() lets it go. What is held must not be written any more: whoever grows into it gets a copy.
  // Only for caches without recurrent state.
  std::vector<int32_t> hold(SeqId seq, int32_t index);
  bool holds(SeqId seq, int32_t index) const;  // not freed behind a window
  void append(SeqId seq, std::span<const int32_t> held, int32_t n);
  void copy_in(SeqId seq, std::span<const int32_t> held, int32_t n);
  void drop(std::span<const int32_t> held);

  // Valid until the next call that changes the sequence.
  SeqView view(SeqId seq, int32_t rope_tokens) const;
  KvLayer kv(int32_t layer) const;
  void* state(int32_t layer, int32_t slot) const;  // state_bytes of that layer

  // The windows of the groups (0: none), in the order of their first layer.
  static std::vector<int32_t> windows(std::span<const StateSpec> layers);
  // One block in every group.
  static int64_t bytes_per_block(std::span<const StateSpec> layers, DType kv_dtype);
  static int64_t bytes_per_block(std::span<const StateSpec> layers, DType kv_dtype, int32_t group);
  static int64_t bytes_per_state(std::span<const StateSpec> layers);  // one sequence's recurrent state
  int64_t bytes() const;                                              // all memory held, but for parking
  int64_t parked_bytes() const;                                       // room for parked blocks
  int32_t parked_blocks() const;                                      // in use
  uint64_t id() const;            // of this cache among all there ever were in the process
  int64_t touched_bytes() const;  // of bytes(), blocks and states that were in use at some time: resident on a CPU

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hayfork::engine
