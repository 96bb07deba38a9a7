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

BlockHistory BlockKeys::history(int32_t position) const {
  const int32_t begin = std::max(position - (reach_ - 1), 0);
  const auto i = static_cast<size_t>(begin - first_), j = static_cast<size_t>(position - first_);
  const bool whole = position - begin == reach_ - 1;  // shorter only at the beginning of the sequence
  return {stretch(a_, i, j, whole ? power_a_ : power(kBaseA, position - begin)),
          stretch(b_, i, j, whole ? power_b_ : power(kBaseB, position - begin)), position, rope_root_};
}

std::span<const int32_t> BlockKeys::tokens(int32_t position) const {
  const auto begin = static_cast<size_t>(position - first_);
  const auto rest = static_cast<size_t>(kBlockTokens - position % kBlockTokens);
  return std::span(tokens_).subspan(begin, std::min(rest, tokens_.size() - begin));
}

const BlockIndex::Block* BlockIndex::holder(const BlockHistory& history, std::span<const int32_t> tokens) const {
  const auto [begin, end] = pieces_.equal_range(history);
  const auto offset = static_cast<size_t>(history.position % kBlockTokens);
  for (auto it = begin; it != end; ++it) {
    const std::vector<int32_t>& kept = it->second->tokens;
    if (kept.size() >= offset + tokens.size() &&
        std::equal(tokens.begin(), tokens.end(), kept.begin() + static_cast<std::ptrdiff_t>(offset))) {
      return it->second;
    }
  }
  return nullptr;
}

BlockIndex::Piece BlockIndex::find(const BlockKeys& keys, int32_t position, int32_t first, int32_t end,
                                   bool parts) const {
  if (empty()) return {};
  const int32_t block = position / kBlockTokens * kBlockTokens;
  const int32_t begin = position == first ? block : position;
  const bool part = begin != block;
  if (begin % kPieceTokens != 0 || (part && (!parts || block < first))) return {};
  const std::span<const int32_t> tokens = keys.tokens(begin);
  const auto n = std::min<int32_t>(static_cast<int32_t>(tokens.size()), end - begin) - (part ? 1 : 0);
  if (n <= 0) return {};
  return {holder(keys.history(begin), tokens.first(static_cast<size_t>(n))), begin, begin + n};
}

BlockIndex::Block* BlockIndex::insert(const BlockKeys& keys, int32_t begin) {
  const std::span<const int32_t> tokens = keys.tokens(begin);
  if (holder(keys.history(begin), tokens) != nullptr) return nullptr;
  Block& block = blocks_.emplace_back();
  block.tokens.assign(tokens.begin(), tokens.end());
  for (int32_t p = 0; p < static_cast<int32_t>(tokens.size()); p += kPieceTokens) {
    block.pieces.push_back(keys.history(begin + p));
    pieces_.emplace(block.pieces.back(), &block);
  }
  return &block;
}

BlockIndex::Block BlockIndex::take_oldest() {
  const Block* oldest = &blocks_.front();
  for (const BlockHistory& piece : oldest->pieces) {
    auto [it, end] = pieces_.equal_range(piece);
    it = std::find_if(it, end, [&](const auto& entry) { return entry.second == oldest; });
    HAY_CHECK(it != end);
    pieces_.erase(it);
  }
  Block taken = std::move(blocks_.front());
  blocks_.pop_front();
  return taken;
}

BlockStore::~BlockStore() {
  while (!empty()) evict();
}

void BlockStore::adopt(SeqId seq, const BlockIndex::Piece& piece) {
  const int32_t block = piece.begin / kBlockTokens;
  HAY_CHECK(cache_.length(seq) / kBlockTokens == block);
  if (piece.begin % kBlockTokens == 0) {
    cache_.append(seq, piece.block->held, piece.end - block * kBlockTokens);
  } else {
    cache_.copy_in(seq, piece.block->held, piece.end - block * kBlockTokens);
  }
}

bool BlockStore::insert(SeqId seq, const BlockKeys& keys, int32_t begin) {
  if (!cache_.holds(seq, begin / kBlockTokens)) return false;
  BlockIndex::Block* block = index_.insert(keys, begin);
  if (block == nullptr) return false;
  block->held = cache_.hold(seq, begin / kBlockTokens);
  return true;
}

// Depth first, as nodes are admitted.
int64_t rows_taken_over(const Agenda& agenda, int64_t reach, bool two_streams) {
  const RequestTrie& trie = agenda.trie();
  BlockIndex index;
  int64_t saved = 0;
  std::vector<int32_t> stack;
  for (int32_t id = trie.size(); id-- > 0;) {
    if (trie.node(id).parent < 0) stack.push_back(id);
  }
  while (!stack.empty()) {
    const int32_t id = stack.back();
    stack.pop_back();
    const TrieNode& node = trie.node(id);
    const auto first_child = static_cast<std::ptrdiff_t>(stack.size());
    for (int32_t c = node.first_child; c >= 0; c = trie.node(c).next_sibling) stack.push_back(c);
    std::reverse(stack.begin() + first_child, stack.end());
    if (node.leaf >= 0 || node.length() < kLocalTokens) continue;
    const BlockKeys keys(trie, id, reach);
    const std::vector<int32_t> computed = two_streams ? std::vector<int32_t>() : agenda.wanted_rows(id);
    auto wanted = computed.begin();
    for (int32_t p = node.begin, first = p; p < node.end;) {
      const int32_t end = wanted == computed.end() ? node.end : *wanted;
      const BlockIndex::Piece piece = p < end ? index.find(keys, p, first, end, two_streams) : BlockIndex::Piece{};
      if (piece.block != nullptr) {
        saved += piece.end - p;
        p = piece.end;
      } else {
        if (p == end) ++wanted;
        ++p;
      }
    }
    for (int32_t b = node.begin / kBlockTokens * kBlockTokens; b < node.end; b += kBlockTokens) index.insert(keys, b);
  }
  return saved;
}

}  // namespace hayfork::engine
