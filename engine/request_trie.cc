#include "engine/request_trie.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace hayfork::engine {

int32_t RequestTrie::add(TrieNode node) {
  nodes_.push_back(node);
  return static_cast<int32_t>(nodes_.size()) - 1;
}

int32_t RequestTrie::add_root(int32_t owner) {
  return add({.owner = owner});
}

int32_t RequestTrie::add_leaf(int32_t from, int32_t length, int32_t owner, int32_t leaf) {
  const int32_t begin = node(from).end;
  return add({.parent = from, .begin = begin, .end = begin + length, .owner = owner, .leaf = leaf});
}

int32_t RequestTrie::insert(int32_t from, std::span<const int32_t> tokens, int32_t owner, bool shared) {
  int32_t at = from;
  while (!tokens.empty()) {
    const auto found = shared ? children_.find(key(at, tokens.front())) : children_.end();
    if (found == children_.end()) {
      const int32_t begin = node(at).end;
      const int32_t id = add({.parent = at,
                              .begin = begin,
                              .end = begin + static_cast<int32_t>(tokens.size()),
                              .tokens = tokens.data(),
                              .owner = owner});
      if (shared) children_.emplace(key(at, tokens.front()), id);
      return id;
    }
    const TrieNode& child = node(found->second);
    const auto most = static_cast<int32_t>(std::min<size_t>(tokens.size(), static_cast<size_t>(child.length())));
    const auto equal =
        static_cast<int32_t>(std::mismatch(tokens.begin(), tokens.begin() + most, child.tokens).first - tokens.begin());
    at = equal == child.length() ? found->second : split(found->second, equal);
    tokens = tokens.subspan(static_cast<size_t>(equal));
  }
  return at;
}

// The lower part keeps the id: whoever ends at the node's end still does.
int32_t RequestTrie::split(int32_t id, int32_t n_tokens) {
  TrieNode upper = node(id);
  upper.end = upper.begin + n_tokens;
  const int32_t upper_id = add(upper);
  children_[key(upper.parent, upper.tokens[0])] = upper_id;
  TrieNode& lower = nodes_[static_cast<size_t>(id)];
  lower.parent = upper_id;
  lower.begin = upper.end;
  lower.tokens += n_tokens;
  children_.emplace(key(upper_id, lower.tokens[0]), id);
  return upper_id;
}

void RequestTrie::finish() {
  // Siblings in the order of their owners; among one owner's nodes, the order of ids.
  std::vector<int32_t> order(nodes_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return node(a).owner < node(b).owner; });
  for (auto id = order.rbegin(); id != order.rend(); ++id) {
    TrieNode& child = nodes_[static_cast<size_t>(*id)];
    if (child.parent < 0) continue;
    TrieNode& parent = nodes_[static_cast<size_t>(child.parent)];
    child.next_sibling = parent.first_child;
    parent.first_child = *id;
    ++parent.n_children;
  }
  top_down_.clear();
  for (const int32_t id : order) {
    if (node(id).parent < 0) top_down_.push_back(id);
  }
  for (size_t i = 0; i < top_down_.size(); ++i) {
    for (int32_t c = node(top_down_[i]).first_child; c >= 0; c = node(c).next_sibling) top_down_.push_back(c);
  }
  HAY_CHECK(top_down_.size() == nodes_.size());
  children_.clear();
}

}  // namespace hayfork::engine
