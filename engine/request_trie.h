// A compressed trie over the tokens of many requests: every stretch of tokens that several requests share is one node,
// so it is computed once. Knows no request: whoever inserts remembers the node it got. Token memory is borrowed and
// must outlive the trie. Building takes time linear in the tokens.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace hayfork::engine {

struct TrieNode {
  int32_t parent = -1;
  int32_t begin = 0, end = 0;       // positions
  const int32_t* tokens = nullptr;  // of positions begin … end−1; null in roots and leaves that reserve positions
  int32_t owner = 0;                // whoever inserted these positions first
  int32_t first_child = -1, next_sibling = -1;  // after finish()
  int32_t n_children = 0;
  int32_t leaf = -1;  // ≥ 0: a leaf that reserves positions for tokens not known yet, with this number of the caller's

  int32_t length() const { return end - begin; }
};

class RequestTrie {
 public:
  int32_t add_root(int32_t owner);
  // The node at whose end `tokens` end when they follow the end of node `from`. Owners must not decrease from call to
  // call: siblings are visited in their order. With `shared` false existing nodes are not used, nor this one by others.
  int32_t insert(int32_t from, std::span<const int32_t> tokens, int32_t owner, bool shared = true);
  // A leaf of `length` positions after the end of `from`.
  int32_t add_leaf(int32_t from, int32_t length, int32_t owner, int32_t leaf);
  // Links siblings. Nothing may be inserted afterwards.
  void finish();

  const TrieNode& node(int32_t id) const { return nodes_[static_cast<size_t>(id)]; }
  int32_t size() const { return static_cast<int32_t>(nodes_.size()); }
  // Parents before their children. Requires: finish().
  const std::vector<int32_t>& top_down() const { return top_down_; }

 private:
  int32_t add(TrieNode node);
  int32_t split(int32_t id, int32_t n_tokens);  // the new node with the first n_tokens of `id`
  static uint64_t key(int32_t node, int32_t token) {
    return static_cast<uint64_t>(static_cast<uint32_t>(node)) << 32 | static_cast<uint32_t>(token);
  }
  struct Hash {
    size_t operator()(uint64_t x) const {  // the finalizer of SplitMix64: neighbouring tokens must not share buckets
      x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
      x = (x ^ x >> 27) * 0x94D049BB133111EBu;
      return static_cast<size_t>(x ^ x >> 31);
    }
  };

  std::vector<TrieNode> nodes_;
  std::unordered_map<uint64_t, int32_t, Hash> children_;  // (node, first token) → child
  std::vector<int32_t> top_down_;
};

}  // namespace hayfork::engine
