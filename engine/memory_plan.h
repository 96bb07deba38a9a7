// How much cache the nodes of a trie need, and how many sequences fit into the memory there is. A sequence is admitted
// only with all the memory that it and, one after another, everything below it can need: so nothing is ever preempted,
// and any admitted part of the trie can always go on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/agenda.h"
#include "engine/cache.h"
#include "engine/context.h"
#include "engine/model.h"

namespace hayfork::engine {

// Amounts by kind: blocks of each window group of the cache, then recurrent state slots if the model has any.
class CacheNeeds {
 public:
  // `step`: positions of one sequence that a pass may add at most.
  CacheNeeds(const RequestTrie& trie, std::span<const StateSpec> specs, int32_t step);

  size_t n_kinds() const { return n_kinds_; }
  std::span<const int32_t> own(int32_t node) const { return row(own_, node); }    // added to what its parent holds
  std::span<const int32_t> path(int32_t node) const { return row(path_, node); }  // from the root to its end
  std::span<const int32_t> tree(int32_t node) const { return row(tree_, node); }  // it, and its children in turn

 private:
  std::span<const int32_t> row(const std::vector<int32_t>& table, int32_t node) const {
    return std::span(table).subspan(static_cast<size_t>(node) * n_kinds_, n_kinds_);
  }
  std::span<int32_t> row(std::vector<int32_t>& table, int32_t node) {
    return std::span(table).subspan(static_cast<size_t>(node) * n_kinds_, n_kinds_);
  }
  int32_t blocks(const RequestTrie& trie, int32_t node, int32_t window, int32_t step) const;

  std::vector<int32_t> windows_;
  size_t n_kinds_ = 0;
  std::vector<int32_t> own_, path_, tree_;  // [node][kind]
};

struct MemoryLimits {
  int32_t chunk = 0, batch_size = 0;  // 0: chosen
  int64_t bytes = 0;                  // for cache and scratch; 0: measured
  int64_t parked_bytes = 0;           // beside that, for keys that only output rows still read; 0: what there is
  DType kv_dtype = DType::f32;
};

struct MemoryPlan {
  int32_t chunk = 0, batch_size = 0;
  int64_t reach_tokens = 0;        // > 0: blocks are kept for reuse by what they depend on (block_store.h)
  int32_t kept_blocks = 0;         // of them, what plan_cache() counts on: a sweep's haystack and its edits
  int64_t cache_budget_bytes = 0;  // the most the cache may take
  int64_t parking_bytes = 0;       // and for parked blocks beside that, where a sequence's keys can be parked
  int64_t cache_bytes = 0, scratch_bytes = 0;
  std::vector<int32_t> amounts;  // of each kind, parked ones included
  int32_t n_parked = 0;
};

// Bytes of one unit of each kind.
std::vector<int64_t> kind_bytes(std::span<const StateSpec> specs, DType kv_dtype);

// The first half of the plan: rows of a pass and what is left for the cache. `held`: bytes of a cache that is there
// and will be used again or given back; where memory is measured they count as free.
MemoryPlan plan_passes(const Model& model, const Context& context, const MemoryLimits& limits, int64_t held = 0);
// Room for parked blocks: where base rows see windows in every layer and nothing else is kept.
int64_t parking_bytes(const Model& model, const Context& context, const MemoryLimits& limits);
// What passes of this agenda can take at most: short lists fill no pass.
int64_t pass_scratch_bytes(const Model& model, const MemoryPlan& plan, const Agenda& agenda);
// The second: amounts for the agenda. Nodes whose path alone exceeds the budget are left out of account.
void plan_cache(MemoryPlan& plan, const Agenda& agenda, const CacheNeeds& needs, std::span<const int64_t> bytes);

// Tokens of the longest sequences that `n` of fit into `budget` bytes of cache, when a pass adds `step` to each.
int64_t longest_that_fits(std::span<const StateSpec> specs, DType kv_dtype, int64_t budget, int64_t n, int64_t step);
// Bytes of cache that `n` sequences of so many tokens take then; the largest integer where none holds them.
int64_t sequences_bytes(std::span<const StateSpec> specs, DType kv_dtype, int64_t tokens, int64_t n, int64_t step);

int64_t total_bytes(std::span<const int32_t> amounts, std::span<const int64_t> bytes);

}  // namespace hayfork::engine
