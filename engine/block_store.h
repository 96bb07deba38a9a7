// Locality reuse (orthros.md section 3, property 4): where every base row sees a window, K/V at a position depend only
// on the last `reach` tokens and the absolute position. So blocks of K/V are kept by what they depend on, and a
// sequence that has the same tokens there takes them over bit for bit: in a sweep of needle depths all of the haystack
// but the reach behind each edit. The scheduler decides how many blocks are kept.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/agenda.h"
#include "engine/cache.h"
#include "engine/request_trie.h"

namespace hayfork::engine {

// A block may be taken over from any multiple of this on: an edit ends anywhere, and whole blocks would compute half of
// one too many behind it.
constexpr int32_t kPieceTokens = 16;
// Nodes shorter than this are computed without looking for blocks to take over: hashing their reach would cost more.
constexpr int32_t kLocalTokens = kBlockTokens;

// What comes before a position within its reach: with the tokens from there on, all that their K/V depend on. Two
// independent 61-bit hashes: unequal histories meet with a chance below 2^-100 even among billions of blocks.
struct BlockHistory {
  uint64_t a = 0, b = 0;
  int32_t position = 0, rope_root = 0;  // the trie's root (its rotary tables)
  bool operator==(const BlockHistory&) const = default;
};

// The blocks that one node of a trie reaches into.
class BlockKeys {
 public:
  BlockKeys() = default;
  BlockKeys(const RequestTrie& trie, int32_t node, int64_t reach);
  BlockHistory history(int32_t position) const;
  // From a position to the end of its block or of the node.
  std::span<const int32_t> tokens(int32_t position) const;
  bool empty() const { return tokens_.empty(); }

 private:
  int32_t first_ = 0;  // position of the first token below
  int32_t rope_root_ = 0, reach_ = 0;
  std::vector<int32_t> tokens_;
  std::vector<uint64_t> a_, b_;         // [i]: hash of the first i tokens
  uint64_t power_a_ = 1, power_b_ = 1;  // base^(reach − 1)
};

// Which blocks are kept. Knows no cache.
class BlockIndex {
 public:
  struct Block {
    std::vector<int32_t> tokens;  // fewer than kBlockTokens at a node's end
    std::vector<int32_t> held;    // in the cache, by group
    std::vector<BlockHistory> pieces;
  };

  // What can be taken over at `position` of a sequence whose rows from `first` on are computed in one go, up to `end`.
  // Rows of a block that begins before `first` are there already: such a block comes whole, with the same bits. Other
  // parts of blocks (only with `parts`) leave their last position to be computed: writing keys clears what lies in a
  // block behind the last row that a pass writes there. Requires: first ≤ position < end.
  struct Piece {
    const Block* block = nullptr;  // null: nothing
    int32_t begin = 0, end = 0;    // begin is the block's beginning, or `position`
  };
  Piece find(const BlockKeys& keys, int32_t position, int32_t first, int32_t end, bool parts) const;
  // The block at `begin`, as far as the node goes; null when an equal one is here.
  Block* insert(const BlockKeys& keys, int32_t begin);
  Block take_oldest();  // Requires: not empty
  bool empty() const { return blocks_.empty(); }
  int32_t size() const { return static_cast<int32_t>(blocks_.size()); }

 private:
  struct Hash {
    size_t operator()(const BlockHistory& h) const {
      return static_cast<size_t>(h.a ^ h.b << 1 ^ static_cast<uint64_t>(h.position) << 32);
    }
  };
  const Block* holder(const BlockHistory& history, std::span<const int32_t> tokens) const;

  std::list<Block> blocks_;  // oldest first
  std::unordered_multimap<BlockHistory, const Block*, Hash> pieces_;
};

class BlockStore {
 public:
  explicit BlockStore(Cache& cache) : cache_(cache) {}
  ~BlockStore();
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;

  const BlockIndex& index() const { return index_; }
  // Gives a piece to a sequence. One that begins with its block replaces what the sequence has of it; a later one is
  // copied behind it, and the caller writes the positions before it after this call.
  void adopt(SeqId seq, const BlockIndex::Piece& piece);
  // Keeps the sequence's block at `begin`, written as far as its node goes. False when an equal one is here, or when
  // the sequence has let it go already.
  bool insert(SeqId seq, const BlockKeys& keys, int32_t begin);
  // Lets the oldest one go. Requires: not empty.
  void evict() { cache_.drop(index_.take_oldest().held); }
  bool empty() const { return index_.empty(); }
  int32_t size() const { return index_.size(); }

 private:
  Cache& cache_;
  BlockIndex index_;
};

// Base rows of an agenda that are taken over when its nodes are computed one by one, in the order of a run, and memory
// keeps every block. With one stream wanted rows are base rows, and computed.
int64_t rows_taken_over(const Agenda& agenda, int64_t reach, bool two_streams);

}  // namespace hayfork::engine
