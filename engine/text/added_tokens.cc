#include "engine/text/added_tokens.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "engine/text/unicode.h"

namespace hayfork::engine {
namespace {

size_t char_begin_before(std::string_view text, size_t i) {
  --i;
  while (i > 0 && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) --i;
  return i;
}

bool has_bits(std::string_view text, size_t i, uint16_t bits) {
  return (unicode::char_class(unicode::decode(text, i).code) & bits) != 0;
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  const bool left = begin == 0 || !has_bits(text, char_begin_before(text, begin), unicode::kWord);
  const bool right = end == text.size() || !has_bits(text, end, unicode::kWord);
  return left && right;
}

size_t strip_left(std::string_view text, size_t begin) {
  while (begin > 0) {
    const size_t before = char_begin_before(text, begin);
    if (!has_bits(text, before, unicode::kSpace)) break;
    begin = before;
  }
  return begin;
}

size_t strip_right(std::string_view text, size_t end) {
  while (end < text.size() && has_bits(text, end, unicode::kSpace)) end += unicode::decode(text, end).length;
  return end;
}

bool same(const AddedToken& a, const AddedToken& b) {
  return a.content == b.content && a.single_word == b.single_word && a.lstrip == b.lstrip && a.rstrip == b.rstrip &&
         a.normalized == b.normalized && a.special == b.special;
}

}  // namespace

void PatternTrie::insert(std::string_view pattern, int32_t value) {
  if (pattern.empty()) return;
  if (roots_.empty()) roots_.assign(256, -1);
  int32_t node = -1;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const auto byte = static_cast<unsigned char>(pattern[i]);
    int32_t next = i == 0 ? roots_[byte] : nodes_[static_cast<size_t>(node)].child;
    while (next >= 0 && nodes_[static_cast<size_t>(next)].byte != byte)
      next = nodes_[static_cast<size_t>(next)].sibling;
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      int32_t& head = i == 0 ? roots_[byte] : nodes_[static_cast<size_t>(node)].child;
      const int32_t sibling = i == 0 ? -1 : head;
      head = next;
      nodes_.push_back({-1, -1, sibling, byte});
    }
    node = next;
  }
  nodes_[static_cast<size_t>(node)].value = value;
}

int32_t PatternTrie::longest_at(std::string_view text, size_t at, size_t& length) const {
  int32_t best = -1;
  int32_t node = roots_[static_cast<unsigned char>(text[at])];
  for (size_t i = at; node >= 0;) {
    const Node& here = nodes_[static_cast<size_t>(node)];
    ++i;
    if (here.value >= 0) {
      best = here.value;
      length = i - at;
    }
    if (i == text.size()) break;
    node = here.child;
    const auto byte = static_cast<unsigned char>(text[i]);
    while (node >= 0 && nodes_[static_cast<size_t>(node)].byte != byte)
      node = nodes_[static_cast<size_t>(node)].sibling;
  }
  return best;
}

size_t PatternTrie::next_start(std::string_view text, size_t at) const {
  while (at < text.size() && roots_[static_cast<unsigned char>(text[at])] < 0) ++at;
  return at;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Vocabulary& vocabulary, const Normalizer* normalizer,
                         std::vector<std::string>& warnings) {
  auto next_id = static_cast<int32_t>(vocabulary.size());
  for (AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    const auto known = by_content_.find(token.content);
    if (known != by_content_.end() && same(*by_id(known->second), token)) continue;
    const int32_t in_file = token.id;
    token.id = known != by_content_.end() ? known->second : vocabulary.find(token.content);
    if (token.id < 0) token.id = next_id++;
    if (token.id != in_file) {
      warnings.push_back(fmt::format("added token \"{}\" has id {} in the file, but {} by the vocabulary; {} is used",
                                     printable(token.content), in_file, token.id, token.id));
    }
    token.pattern = token.content;
    if (token.normalized && normalizer != nullptr) {
      AlignedText text(token.content, 0, false);
      normalizer->apply(text);
      token.pattern = text.text();
      if (token.pattern.empty()) {  // the reference then cuts the text at every character
        throw Error(
            ErrorCode::unsupported, ErrorSubject::model, "an added token of the tokenizer is empty after normalization",
            {.where = "tokenizer.json, added_tokens", .why = "\"" + printable(token.content) + "\"", .next = {}});
      }
    }
    by_content_[token.content] = token.id;
    if (token.special) special_[token.content] = true;
    if (static_cast<size_t>(token.id) >= index_.size()) index_.resize(static_cast<size_t>(token.id) + 1, -1);
    index_[static_cast<size_t>(token.id)] = static_cast<int32_t>(tokens_.size());
    tokens_.push_back(std::move(token));
  }
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    if (by_id(token.id) != &token) continue;  // replaced by a later one of the same text
    (token.normalized ? normalized_ : raw_).insert(token.pattern, static_cast<int32_t>(i));
  }
}

const AddedToken* AddedTokens::by_id(int32_t id) const {
  if (id < 0 || id >= id_limit() || index_[static_cast<size_t>(id)] < 0) return nullptr;
  return &tokens_[static_cast<size_t>(index_[static_cast<size_t>(id)])];
}

std::optional<int32_t> AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(content);
  if (found == by_content_.end()) return std::nullopt;
  return found->second;
}

bool AddedTokens::special_text(std::string_view text) const {
  return special_.find(text) != special_.end();
}

bool AddedTokens::special(int32_t id) const {
  const AddedToken* token = by_id(id);
  return token != nullptr && special_text(token->content);
}

std::vector<AddedTokens::Hit> AddedTokens::split(const PatternTrie& trie, std::string_view text,
                                                 bool parse_special) const {
  std::vector<Hit> out;
  if (text.empty()) return out;
  size_t done = 0;
  for (size_t at = 0; !trie.empty() && (at = trie.next_start(text, at)) < text.size();) {
    size_t length = 0;
    const int32_t found = trie.longest_at(text, at, length);
    if (found < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(found)];
    size_t begin = at;
    size_t end = at + length;
    at = end;  // a hit that is turned down below is not looked into again
    if (!parse_special && special_text(token.content)) continue;
    if (token.single_word && !stands_alone(text, begin, end)) continue;
    if (token.lstrip) begin = std::max(strip_left(text, begin), done);
    if (token.rstrip) end = strip_right(text, end);
    if (done < begin) out.push_back({-1, done, begin});
    if (begin < end) out.push_back({token.id, begin, end});  // empty when the hit before took this one's spaces
    done = end;
  }
  if (done < text.size()) out.push_back({-1, done, text.size()});
  return out;
}

}  // namespace hayfork::engine
