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

// What one block of K/V depends on. Two independent 61-bit hashes of the tokens: unequal tokens meet with a chance
// below 2^-100 even among billions of blocks.
struct BlockKey {
  uint64_t a = 0, b = 0;
  int32_t block = 0, rope_root = 0;  // position / kBlockTokens, and the trie's root (its rotary tables)
  bool operator==(const BlockKey&) const = default;
};

// Keys of the blocks that end inside one node of a trie.
class BlockKeys {
 public:
  BlockKeys() = default;
  BlockKeys(const RequestTrie& trie, int32_t node, int64_t reach);
  // Requires: the block's end lies in (begin, end] of the node.
  BlockKey of(int32_t block) const;
  bool empty() const { return a_.empty(); }

 private:
  int32_t first_ = 0;  // position of the first token hashed
  int32_t rope_root_ = 0;
  int64_t reach_ = 0;
  std::vector<uint64_t> a_, b_;         // [i]: hash of tokens first_ … first_ + i − 1
  uint64_t power_a_ = 1, power_b_ = 1;  // base^(reach + kBlockTokens − 1)
  int32_t full_ = 0;                    // that exponent
};

class BlockStore {
 public:
  explicit BlockStore(Cache& cache) : cache_(cache) {}
  ~BlockStore();
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;

  // Appends the block to the sequence. Requires: the sequence ends where the block begins. False when it isn't here.
  bool adopt(SeqId seq, const BlockKey& key);
  bool has(const BlockKey& key) const { return blocks_.contains(key); }
  // Keeps the sequence's block. Requires: !has(key).
  void insert(SeqId seq, const BlockKey& key);
  // Lets the oldest one go. Requires: not empty.
  void evict();
  bool empty() const { return blocks_.empty(); }
  int32_t size() const { return static_cast<int32_t>(blocks_.size()); }

 private:
  struct Hash {
    size_t operator()(const BlockKey& key) const { return static_cast<size_t>(key.a ^ key.b << 1); }
  };
  Cache& cache_;
  std::unordered_map<BlockKey, std::vector<int32_t>, Hash> blocks_;
  std::deque<BlockKey> oldest_;
};

}  // namespace hayfork::engine
