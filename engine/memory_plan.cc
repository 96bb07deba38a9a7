#include "engine/memory_plan.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace hayfork::engine {
namespace {

// Rows of a pass when nothing is asked. CPU: products are within a few percent of their best from 64 rows on, and
// scratch stays small beside the weights. CUDA: enough rows to fill 132 SMs in every GEMM of the smallest models.
constexpr int32_t kChunkCpu = 512, kChunkCuda = 8192;
constexpr int32_t kSmallestChunk = 16;
// Sequences in flight when nothing is asked: a decode step reads all weights once, and from about this many rows on
// arithmetic takes as long as reading.
constexpr int32_t kBatchCpu = 32, kBatchCuda = 256;
// Share of the free memory that cache and scratch may take together: the rest is for answers, the store and the system.
constexpr double kFreeShareCpu = 0.8, kFreeShareCuda = 0.9;

int32_t blocks_up(int32_t positions) {
  return (positions + kBlockTokens - 1) / kBlockTokens;
}

}  // namespace

// The tail block of the parent is copied when somebody else goes on from it too; an only child takes it over.
int32_t CacheNeeds::blocks(const RequestTrie& trie, int32_t node, int32_t window, int32_t step) const {
  const TrieNode& n = trie.node(node);
  if (n.length() == 0) return 0;
  const bool copies_tail = n.begin % kBlockTokens != 0 && n.parent >= 0 && trie.node(n.parent).n_children > 1;
  const int32_t all = blocks_up(n.end) - blocks_up(n.begin) + (copies_tail ? 1 : 0);
  if (window == 0) return all;
  const int32_t seen = window - 1 + (n.leaf >= 0 ? 1 : step);  // a stretch this long touches at most one block more
  return std::min(all, blocks_up(seen) + 1);
}

CacheNeeds::CacheNeeds(const RequestTrie& trie, std::span<const StateSpec> specs, int32_t step)
    : windows_(Cache::windows(specs)) {
  const bool recurrent = Cache::bytes_per_state(specs) > 0;
  n_kinds_ = windows_.size() + (recurrent ? 1 : 0);
  const size_t cells = static_cast<size_t>(trie.size()) * n_kinds_;
  own_.assign(cells, 0);
  path_.assign(cells, 0);
  tree_.assign(cells, 0);
  for (const int32_t id : trie.top_down()) {
    const std::span<int32_t> own_row = row(own_, id), path_row = row(path_, id);
    for (size_t g = 0; g < windows_.size(); ++g) own_row[g] = blocks(trie, id, windows_[g], step);
    if (recurrent) own_row[windows_.size()] = trie.node(id).length() > 0 ? 1 : 0;
    for (size_t k = 0; k < n_kinds_; ++k) {
      path_row[k] = own_row[k] + (trie.node(id).parent >= 0 ? path(trie.node(id).parent)[k] : 0);
    }
  }
  for (auto id = trie.top_down().rbegin(); id != trie.top_down().rend(); ++id) {
    const std::span<int32_t> tree_row = row(tree_, *id);  // so far: the largest child
    for (size_t k = 0; k < n_kinds_; ++k) tree_row[k] += own(*id)[k];
    if (const int32_t parent = trie.node(*id).parent; parent >= 0) {
      const std::span<int32_t> above = row(tree_, parent);
      for (size_t k = 0; k < n_kinds_; ++k) above[k] = std::max(above[k], tree_row[k]);
    }
  }
}

std::vector<int64_t> kind_bytes(std::span<const StateSpec> specs, DType kv_dtype) {
  std::vector<int64_t> bytes;
  const size_t n_groups = Cache::windows(specs).size();
  for (size_t g = 0; g < n_groups; ++g) {
    bytes.push_back(Cache::bytes_per_block(specs, kv_dtype, static_cast<int32_t>(g)));
  }
  if (const int64_t state = Cache::bytes_per_state(specs); state > 0) bytes.push_back(state);
  return bytes;
}

int64_t sequences_bytes(std::span<const StateSpec> specs, DType kv_dtype, int64_t tokens, int64_t n, int64_t step) {
  int64_t bytes = Cache::bytes_per_state(specs);
  const std::vector<int32_t> windows = Cache::windows(specs);
  const auto blocks_of = [](int64_t positions) { return (positions + kBlockTokens - 1) / kBlockTokens; };
  for (size_t g = 0; g < windows.size(); ++g) {
    int64_t blocks = blocks_of(tokens);
    if (windows[g] > 0) blocks = std::min(blocks, blocks_of(windows[g] - 1 + step) + 1);
    bytes += blocks * Cache::bytes_per_block(specs, kv_dtype, static_cast<int32_t>(g));
  }
  int64_t all = 0;  // longest_that_fits asks for lengths whose bytes no integer holds
  return __builtin_mul_overflow(n, bytes, &all) ? std::numeric_limits<int64_t>::max() : all;
}

int64_t longest_that_fits(std::span<const StateSpec> specs, DType kv_dtype, int64_t budget, int64_t n, int64_t step) {
  int64_t low = 0, high = int64_t{1} << 40;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (sequences_bytes(specs, kv_dtype, middle, n, step) <= budget)
      low = middle;
    else
      high = middle - 1;
  }
  return low / kBlockTokens * kBlockTokens;
}

int64_t total_bytes(std::span<const int32_t> amounts, std::span<const int64_t> bytes) {
  int64_t total = 0;
  for (size_t k = 0; k < amounts.size(); ++k) total += amounts[k] * bytes[k];
  return total;
}

MemoryPlan plan_passes(const Model& model, const Context& context, const MemoryLimits& limits, int64_t held) {
  MemoryPlan plan;
  const bool cpu = context.device() == Device::cpu;
  plan.chunk = limits.chunk > 0 ? limits.chunk : (cpu ? kChunkCpu : kChunkCuda);
  plan.batch_size = limits.batch_size > 0 ? limits.batch_size : (cpu ? kBatchCpu : kBatchCuda);
  const int64_t budget =
      limits.bytes > 0 ? limits.bytes
                       : static_cast<int64_t>((cpu ? kFreeShareCpu : kFreeShareCuda) *
                                              (static_cast<double>(context.free_bytes()) + static_cast<double>(held)));
  const auto scratch = [&] {
    const int64_t decode_rows = int64_t{plan.batch_size} * (model.two_streams() ? 2 : 1);
    const int64_t wanted = plan.chunk + int64_t{plan.batch_size};
    return model.scratch_bytes(plan.chunk + decode_rows, wanted);
  };
  while (scratch() > budget / 2 && plan.chunk > kSmallestChunk) plan.chunk /= 2;
  plan.scratch_bytes = scratch();
  plan.cache_budget_bytes = std::max<int64_t>(budget - plan.scratch_bytes, 0);
  return plan;
}

int64_t parking_bytes(const Model& model, const Context& context, const MemoryLimits& limits) {
  const std::vector<StateSpec> specs = model.state_specs();
  const bool parks = std::all_of(specs.begin(), specs.end(), [](const StateSpec& spec) {
    return spec.n_kv_heads > 0 && spec.window == 0 && spec.base_window > 0 && spec.state_bytes == 0;
  });
  if (!parks) return 0;
  return limits.parked_bytes > 0 ? limits.parked_bytes : context.parking_bytes();
}

int64_t pass_scratch_bytes(const Model& model, const MemoryPlan& plan, const Agenda& agenda) {
  int64_t n_results = 0;
  for (const Job& job : agenda.jobs()) n_results += job.n_results;
  const int64_t streams = model.two_streams() ? 2 : 1;
  const int64_t prefill = std::min<int64_t>(plan.chunk, agenda.base_rows() + (streams - 1) * n_results);
  const int64_t decode = std::min<int64_t>(plan.batch_size, static_cast<int64_t>(agenda.generations().size()));
  return model.scratch_bytes(prefill + decode * streams, std::min(prefill, n_results) + decode);
}

void plan_cache(MemoryPlan& plan, const Agenda& agenda, const CacheNeeds& needs, std::span<const int64_t> bytes) {
  const RequestTrie& trie = agenda.trie();
  std::vector<int32_t> longest(needs.n_kinds(), 0);  // what one path needs
  std::vector<int64_t> all(needs.n_kinds(), 0);      // everything at once
  int32_t longest_end = 0;
  for (int32_t id = 0; id < trie.size(); ++id) {
    const std::span<const int32_t> path = needs.path(id);
    if (total_bytes(path, bytes) > plan.cache_budget_bytes + plan.parking_bytes) continue;
    longest_end = std::max(longest_end, trie.node(id).end);
    for (size_t k = 0; k < needs.n_kinds(); ++k) {
      longest[k] = std::max(longest[k], path[k]);
      all[k] += needs.own(id)[k];
    }
  }
  plan.amounts = longest;
  plan.kept_blocks = plan.reach_tokens > 0 ? 2 * blocks_up(longest_end) : 0;
  const int64_t least = total_bytes(longest, bytes);
  std::vector<int32_t> wanted(needs.n_kinds());
  for (size_t k = 0; k < wanted.size(); ++k) {
    const int64_t batch = int64_t{longest[k]} * plan.batch_size + plan.kept_blocks;
    wanted[k] = static_cast<int32_t>(
        std::clamp<int64_t>(all[k] + plan.kept_blocks, longest[k], std::min<int64_t>(batch, 1 << 30)));
  }
  const int64_t most = total_bytes(wanted, bytes);
  const int64_t spare = plan.cache_budget_bytes - least;
  if (most > least && spare > 0) {
    const double share = std::min(1.0, static_cast<double>(spare) / static_cast<double>(most - least));
    for (size_t k = 0; k < wanted.size(); ++k) {
      plan.amounts[k] += static_cast<int32_t>(share * static_cast<double>(wanted[k] - longest[k]));
    }
  }
  plan.cache_bytes = total_bytes(plan.amounts, bytes);
  plan.n_parked = 0;
  if (plan.parking_bytes > 0 && plan.cache_bytes > plan.cache_budget_bytes) {
    const auto near = static_cast<int32_t>(plan.cache_budget_bytes / bytes[0]);
    plan.n_parked = plan.amounts[0] - near;
    plan.cache_bytes = near * bytes[0];
  }
}

}  // namespace hayfork::engine
