// Locality reuse (orthros.md section 3, property 4): where every base row sees a window, K/V at a position depend only
// on the last `reach` tokens and the absolute position. So blocks of K/V are kept by what they depend on, and a
// sequence that has the same tokens there takes them over bit for bit: in a sweep of needle depths all of the haystack
// but the reach behind each edit. The scheduler decides how many blocks are kept.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/cache.h"
#include "engine/request_trie.h"

namespace hayfork::engine {

// What comes before a block within its reach: with the block's own tokens, all that its K/V depend on. Two independent
// 61-bit hashes: unequal histories meet with a chance below 2^-100 even among billions of blocks.
struct BlockHistory {
  uint64_t a = 0, b = 0;
  int32_t block = 0, rope_root = 0;  // position / kBlockTokens, and the trie's root (its rotary tables)
  bool operator==(const BlockHistory&) const = default;
};

// The blocks that one node of a trie reaches into.
class BlockKeys {
 public:
  BlockKeys() = default;
  BlockKeys(const RequestTrie& trie, int32_t node, int64_t reach);
  BlockHistory history(int32_t block) const;
  // The block's tokens, as many as there are up to the node's end.
  std::span<const int32_t> tokens(int32_t block) const;
  bool empty() const { return tokens_.empty(); }

 private:
  int32_t first_ = 0;  // position of the first token below
  int32_t rope_root_ = 0, reach_ = 0;
  std::vector<int32_t> tokens_;
  std::vector<uint64_t> a_, b_;         // [i]: hash of the first i tokens
  uint64_t power_a_ = 1, power_b_ = 1;  // base^(reach − 1)
};

class BlockStore {
 public:
  explicit BlockStore(Cache& cache) : cache_(cache) {}
  ~BlockStore();
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;

  // Gives the first tokens.size() positions of a block to a sequence that ends in it or where it begins. False when no
  // such block is here.
  bool adopt(SeqId seq, const BlockHistory& history, std::span<const int32_t> tokens);
  // Keeps the sequence's block, all of it written. False when an equal one is here.
  bool insert(SeqId seq, const BlockHistory& history, std::span<const int32_t> tokens);
  // Lets the oldest one go. Requires: not empty.
  void evict();
  bool empty() const { return blocks_.empty(); }
  int32_t size() const { return static_cast<int32_t>(blocks_.size()); }

 private:
  struct Block {
    std::vector<int32_t> tokens, held;
  };
  struct Hash {
    size_t operator()(const BlockHistory& h) const {
      return static_cast<size_t>(h.a ^ h.b << 1 ^ static_cast<uint64_t>(h.block) << 40);
    }
  };
  using Blocks = std::unordered_multimap<BlockHistory, Block, Hash>;
  const Block* find(const BlockHistory& history, std::span<const int32_t> tokens) const;

  Cache& cache_;
  Blocks blocks_;
  std::deque<Blocks::const_pointer> oldest_;  // elements stay where they are, iterators don't
};

}  // namespace hayfork::engine
