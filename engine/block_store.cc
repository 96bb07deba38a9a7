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
BlockKeys::BlockKeys(const RequestTrie& trie, int32_t node, int64_t reach) : reach_(static_cast<int32_t>(reach)) {
  const TrieNode& last = trie.node(node);
  first_ = std::max(last.begin / kBlockTokens * kBlockTokens - (reach_ - 1), 0);
  tokens_.resize(static_cast<size_t>(last.end - first_));
  for (int32_t id = node; id >= 0; id = trie.node(id).parent) {
    const TrieNode& n = trie.node(id);
    rope_root_ = id;
    for (int32_t p = std::max(n.begin, first_); p < n.end; ++p) {
      tokens_[static_cast<size_t>(p - first_)] = n.tokens[p - n.begin];
    }
  }
  a_.resize(tokens_.size() + 1, 0);
  b_.resize(tokens_.size() + 1, 0);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    a_[i + 1] = append(a_[i], kBaseA, tokens_[i]);
    b_[i + 1] = append(b_[i], kBaseB, tokens_[i]);
  }
  power_a_ = power(kBaseA, reach_ - 1);
  power_b_ = power(kBaseB, reach_ - 1);
}

BlockHistory BlockKeys::history(int32_t block) const {
  const int32_t end = block * kBlockTokens, begin = std::max(end - (reach_ - 1), 0);
  const auto i = static_cast<size_t>(begin - first_), j = static_cast<size_t>(end - first_);
  const bool whole = end - begin == reach_ - 1;  // shorter only at the beginning of the sequence
  return {stretch(a_, i, j, whole ? power_a_ : power(kBaseA, end - begin)),
          stretch(b_, i, j, whole ? power_b_ : power(kBaseB, end - begin)), block, rope_root_};
}

std::span<const int32_t> BlockKeys::tokens(int32_t block) const {
  const auto begin = static_cast<size_t>(block * kBlockTokens - first_);
  return std::span(tokens_).subspan(begin, std::min<size_t>(kBlockTokens, tokens_.size() - begin));
}

BlockStore::~BlockStore() {
  while (!empty()) evict();
}

const BlockStore::Block* BlockStore::find(const BlockHistory& history, std::span<const int32_t> tokens) const {
  const auto [begin, end] = blocks_.equal_range(history);
  for (auto it = begin; it != end; ++it) {
    if (std::equal(tokens.begin(), tokens.end(), it->second.tokens.begin())) return &it->second;
  }
  return nullptr;
}

bool BlockStore::adopt(SeqId seq, const BlockHistory& history, std::span<const int32_t> tokens) {
  const Block* block = find(history, tokens);
  if (block == nullptr) return false;
  HAY_CHECK(cache_.length(seq) / kBlockTokens == history.block);
  cache_.append(seq, block->held);
  cache_.truncate(seq, history.block * kBlockTokens + static_cast<int32_t>(tokens.size()));
  return true;
}

bool BlockStore::insert(SeqId seq, const BlockHistory& history, std::span<const int32_t> tokens) {
  HAY_CHECK(tokens.size() == kBlockTokens);
  if (find(history, tokens) != nullptr) return false;
  const auto it = blocks_.emplace(history, Block{{tokens.begin(), tokens.end()}, cache_.hold(seq, history.block)});
  oldest_.push_back(&*it);
  return true;
}

void BlockStore::evict() {
  const Blocks::const_pointer oldest = oldest_.front();
  oldest_.pop_front();
  const auto [begin, end] = blocks_.equal_range(oldest->first);
  for (auto it = begin; it != end; ++it) {
    if (&*it != oldest) continue;
    cache_.drop(it->second.held);
    blocks_.erase(it);
    return;
  }
  HAY_CHECK(false);
}

}  // namespace hayfork::engine
