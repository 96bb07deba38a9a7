#include "engine/block_store.h"

#include <algorithm>

#include "base/error.h"

namespace hayfork::engine {
namespace {

// Polynomial hashes modulo the Mersenne prime 2^61 − 1 with two random bases (Karp and Rabin 1987): the hash of any
// stretch follows from two prefixes.
constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;
constexpr uint64_t kBaseA = 0x1B6D3A91C5E7F20Bu % kPrime, kBaseB = 0x0F58C2D7A3914E6Du % kPrime;

__extension__ typedef unsigned __int128 Wide;

uint64_t multiply(uint64_t x, uint64_t y) {
  const auto product = static_cast<Wide>(x) * y;
  const uint64_t sum = static_cast<uint64_t>(product & kPrime) + static_cast<uint64_t>(product >> 61);
  return sum >= kPrime ? sum - kPrime : sum;
}

uint64_t append(uint64_t hash, uint64_t base, int32_t token) {
  const uint64_t sum = multiply(hash, base) + static_cast<uint64_t>(token) + 1;
  return sum >= kPrime ? sum - kPrime : sum;
}

uint64_t power(uint64_t base, int32_t exponent) {
  uint64_t result = 1;
  for (int32_t i = 0; i < exponent; ++i) result = multiply(result, base);
  return result;
}

uint64_t stretch(const std::vector<uint64_t>& prefix, size_t begin, size_t end, uint64_t shift) {
  const uint64_t before = multiply(prefix[begin], shift);
  return prefix[end] >= before ? prefix[end] - before : prefix[end] + kPrime - before;
}

}  // namespace

// Tokens from reach − 1 before the first block that ends inside the node, up to the node's end.
BlockKeys::BlockKeys(const RequestTrie& trie, int32_t node, int64_t reach) : reach_(reach) {
  const TrieNode& last = trie.node(node);
  const int32_t first_block = last.begin / kBlockTokens;
  first_ = static_cast<int32_t>(std::max<int64_t>(int64_t{first_block} * kBlockTokens - (reach - 1), 0));
  std::vector<int32_t> tokens(static_cast<size_t>(last.end - first_));
  for (int32_t id = node; id >= 0; id = trie.node(id).parent) {
    const TrieNode& n = trie.node(id);
    rope_root_ = id;
    for (int32_t p = std::max(n.begin, first_); p < n.end; ++p) {
      tokens[static_cast<size_t>(p - first_)] = n.tokens[p - n.begin];
    }
  }
  a_.resize(tokens.size() + 1, 0);
  b_.resize(tokens.size() + 1, 0);
  for (size_t i = 0; i < tokens.size(); ++i) {
    a_[i + 1] = append(a_[i], kBaseA, tokens[i]);
    b_[i + 1] = append(b_[i], kBaseB, tokens[i]);
  }
  full_ = static_cast<int32_t>(reach) - 1 + kBlockTokens;
  power_a_ = power(kBaseA, full_);
  power_b_ = power(kBaseB, full_);
}

BlockKey BlockKeys::of(int32_t block) const {
  const int32_t end = (block + 1) * kBlockTokens;
  const auto begin = static_cast<int32_t>(std::max<int64_t>(int64_t{block} * kBlockTokens - (reach_ - 1), 0));
  const auto i = static_cast<size_t>(begin - first_), j = static_cast<size_t>(end - first_);
  const bool whole = end - begin == full_;  // shorter only at the beginning of the sequence
  return {stretch(a_, i, j, whole ? power_a_ : power(kBaseA, end - begin)),
          stretch(b_, i, j, whole ? power_b_ : power(kBaseB, end - begin)), block, rope_root_};
}

BlockStore::~BlockStore() {
  while (!empty()) evict();
}

bool BlockStore::adopt(SeqId seq, const BlockKey& key) {
  const auto found = blocks_.find(key);
  if (found == blocks_.end()) return false;
  HAY_CHECK(cache_.length(seq) == key.block * kBlockTokens);
  cache_.append(seq, found->second);
  return true;
}

void BlockStore::insert(SeqId seq, const BlockKey& key) {
  blocks_.emplace(key, cache_.hold(seq, key.block));
  oldest_.push_back(key);
}

void BlockStore::evict() {
  const auto found = blocks_.find(oldest_.front());
  cache_.drop(found->second);
  blocks_.erase(found);
  oldest_.pop_front();
}

}  // namespace hayfork::engine
