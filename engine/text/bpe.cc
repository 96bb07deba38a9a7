#include "engine/text/bpe.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "engine/text/byte_level.h"
#include "engine/text/unicode.h"

namespace hayfork::engine {
namespace {

constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();
constexpr size_t kShortWord = 40;  // symbols; up to here scanning for the lowest rank beats a heap
constexpr size_t kCutFrom = 24;    // bytes; shorter words are not worth cutting

char32_t first_char(std::string_view text) {
  return unicode::decode(text, 0).code;
}

char32_t last_char(std::string_view text) {
  size_t i = text.size() - 1;
  while (i > 0 && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) --i;
  return unicode::decode(text, i).code;
}

[[noreturn]] void bad_merge(size_t rank, const Bpe::Merge& merge, std::string_view missing) {
  throw Error(ErrorCode::corrupt, ErrorSubject::model,
              "a merge of the tokenizer names a token that is not in its vocabulary",
              {.where = fmt::format("tokenizer.json, model.merges[{}]: \"{}\" + \"{}\"", rank,
                                    printable(merge.first.substr(0, 100)), printable(merge.second.substr(0, 100))),
               .why = fmt::format("missing: \"{}\"", printable(missing.substr(0, 200))),
               .next = {}});
}

}  // namespace

Bpe::Bpe(Vocabulary vocabulary, const std::vector<Merge>& merges, BpeOptions options, bool byte_level)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)), byte_level_(byte_level) {
  HAY_CHECK(!byte_level || options_.allows_bytes());
  plain_chars_ = options_.continuing_subword_prefix.empty() && options_.end_of_word_suffix.empty();
  if (options_.unk_token) unk_id_ = vocabulary_.find(*options_.unk_token);
  build_tables();
  build_merges(merges);
}

void Bpe::build_tables() {
  for (size_t byte = 0; byte < 256; ++byte) {
    std::string text;
    if (byte_level_) {
      append_utf8(text, kByteToChar[byte]);
    } else {
      text = fmt::format("<0x{:02X}>", byte);
    }
    byte_ids_[byte] = vocabulary_.find(text);
  }
  if (byte_level_ && options_.ignore_merges) {
    raw_texts_.reserve(vocabulary_.size());
    by_raw_.reserve(vocabulary_.size());
    vocabulary_.for_each([this](std::string_view text, int32_t id) {
      std::optional<std::string> raw = bytes_of_token(text);
      if (!raw) return;
      raw_texts_.push_back(std::move(*raw));
      by_raw_.insert(raw_texts_.back(), id);
    });
  }
  if (byte_level_) return;
  vocabulary_.for_each([this](std::string_view text, int32_t id) {
    if (text.empty() || text.size() > 4) return;
    const unicode::Decoded c = unicode::decode(text, 0);
    if (c.length != text.size()) return;
    if (c.code >= char_ids_.size()) char_ids_.resize(c.code + 1, -1);
    char_ids_[c.code] = id;
  });
}

void Bpe::build_merges(const std::vector<Merge>& merges) {
  const size_t prefix = options_.continuing_subword_prefix.size();
  merges_.reserve(merges.size());
  if (!byte_level_) joints_.reserve(merges.size());
  std::string joined;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const int32_t left_id = vocabulary_.find(left);
    const int32_t right_id = vocabulary_.find(right);
    if (left_id < 0) bad_merge(rank, merges[rank], left);
    if (right_id < 0) bad_merge(rank, merges[rank], right);
    // With a prefix for continuing pieces the result keeps only the first one.
    if (right.size() < prefix) bad_merge(rank, merges[rank], right);
    joined.assign(left).append(right.substr(prefix));
    const int32_t result = vocabulary_.find(joined);
    if (result < 0) bad_merge(rank, merges[rank], joined);
    merges_.set(static_cast<uint32_t>(left_id), static_cast<uint32_t>(right_id), {static_cast<uint32_t>(rank), result});
    if (!byte_level_ && !left.empty() && !right.empty()) joints_.set(last_char(left), first_char(right), {0, 0});
  }
}

void Bpe::encode(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids,
                 std::vector<uint32_t>* lengths) const {
  if (word.empty()) return;
  if (options_.ignore_merges) {
    const int32_t id = byte_level_ ? by_raw_.find(word) : vocabulary_.find(word);
    if (id >= 0) {
      ids.push_back(id);
      if (lengths) lengths->push_back(static_cast<uint32_t>(vocabulary_.text(id).size()));
      return;
    }
  }
  if (byte_level_ || !plain_chars_ || word.size() < kCutFrom) return encode_part(word, scratch, ids, lengths);
  for (size_t begin = 0; begin < word.size();) {
    const size_t end = safe_cut(word, begin);
    encode_part(word.substr(begin, end - begin), scratch, ids, lengths);
    begin = end;
  }
}

// End of the stretch from `begin` that can be encoded alone: behind it stand two characters of the vocabulary between
// which no merge ever joins. Exact, because a merge that reaches across would need that joint.
size_t Bpe::safe_cut(std::string_view word, size_t begin) const {
  unicode::Decoded before = unicode::decode(word, begin);
  for (size_t i = begin + before.length; i < word.size();) {
    const unicode::Decoded here = unicode::decode(word, i);
    const bool known = before.code < char_ids_.size() && char_ids_[before.code] >= 0 && here.code < char_ids_.size() &&
                       char_ids_[here.code] >= 0;
    if (known && !joints_.contains(before.code, here.code)) return i;
    i += here.length;
    before = here;
  }
  return word.size();
}

void Bpe::encode_part(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids,
                      std::vector<uint32_t>* lengths) const {
  const bool cacheable = lengths == nullptr && word.size() <= WordCache::kMaxKey;
  size_t hash = 0;
  if (cacheable) {
    hash = std::hash<std::string_view>{}(word);
    if (const std::span<const int32_t> known = scratch.cache.find(word, hash); !known.empty()) {
      ids.insert(ids.end(), known.begin(), known.end());
      return;
    }
  }
  scratch.symbols.clear();
  byte_level_ ? start_bytes(word, scratch) : start_chars(word, scratch);
  const bool long_word = scratch.symbols.size() > kShortWord;
  long_word ? merge_long(scratch) : merge_short(scratch);
  const size_t first = ids.size();
  for (const BpeScratch::Symbol& s : scratch.symbols) {
    if (s.id < 0) continue;
    ids.push_back(s.id);
    if (lengths) lengths->push_back(s.length);
  }
  if (cacheable) scratch.cache.store(word, hash, std::span(ids).subspan(first));
}

void Bpe::start_bytes(std::string_view word, BpeScratch& scratch) const {
  for (const char c : word) {
    const auto byte = static_cast<unsigned char>(c);
    const auto length = static_cast<uint32_t>(byte_char_length(byte));
    if (byte_ids_[byte] < 0) {
      push_unknown(length, scratch);
    } else {
      flush_unknown(scratch);
      scratch.symbols.push_back({byte_ids_[byte], length, 0, 0});
    }
  }
  flush_unknown(scratch);
}

void Bpe::start_chars(std::string_view word, BpeScratch& scratch) const {
  for (size_t i = 0; i < word.size();) {
    const uint32_t length = unicode::decode(word, i).length;
    const int32_t id = char_id(word, i, length);
    if (id >= 0) {
      flush_unknown(scratch);
      scratch.symbols.push_back({id, length, 0, 0});
    } else if (!push_fallback(word, i, length, scratch)) {
      push_unknown(length, scratch);
    }
    i += length;
  }
  flush_unknown(scratch);
}

int32_t Bpe::char_id(std::string_view word, size_t begin, uint32_t length) const {
  if (plain_chars_) {
    const char32_t c = unicode::decode(word, begin).code;
    return c < char_ids_.size() ? char_ids_[c] : -1;
  }
  std::string text(begin == 0 ? "" : options_.continuing_subword_prefix);
  text += word.substr(begin, length);
  if (begin + length == word.size()) text += options_.end_of_word_suffix;
  return vocabulary_.find(text);
}

bool Bpe::push_fallback(std::string_view word, size_t begin, uint32_t length, BpeScratch& scratch) const {
  if (!options_.byte_fallback) return false;
  std::string text(begin == 0 ? "" : options_.continuing_subword_prefix);
  text += word.substr(begin, length);
  if (begin + length == word.size()) text += options_.end_of_word_suffix;
  const auto id_of = [this](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
  if (std::any_of(text.begin(), text.end(), [&](char c) { return id_of(c) < 0; })) return false;
  for (const char c : text) scratch.symbols.push_back({id_of(c), 1, 0, 0});
  return true;
}

void Bpe::push_unknown(uint32_t length, BpeScratch& scratch) const {
  if (!options_.unk_token) return;
  if (unk_id_ < 0) {
    throw Error(ErrorCode::corrupt, ErrorSubject::model, "the tokenizer's unknown token is not in its vocabulary",
                {.where = "tokenizer.json, model.unk_token",
                 .why = fmt::format("\"{}\" is needed for a character without a token", printable(*options_.unk_token)),
                 .next = {}});
  }
  if (scratch.unknown_open && options_.fuse_unk) {
    scratch.unknown_length += length;
    return;
  }
  flush_unknown(scratch);
  scratch.unknown_open = true;
  scratch.unknown_length = length;
}

void Bpe::flush_unknown(BpeScratch& scratch) const {
  if (!scratch.unknown_open) return;
  scratch.symbols.push_back({unk_id_, scratch.unknown_length, 0, 0});
  scratch.unknown_open = false;
}

void Bpe::merge_short(BpeScratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& ranks = scratch.ranks;
  auto& results = scratch.results;
  const size_t n = symbols.size();
  if (n < 2) return;
  ranks.assign(n - 1, kNoRank);
  results.assign(n - 1, -1);
  const auto look = [&](size_t i) {
    const PairTable::Value v =
        merges_.find(static_cast<uint32_t>(symbols[i].id), static_cast<uint32_t>(symbols[i + 1].id));
    ranks[i] = v.result < 0 ? kNoRank : v.rank;
    results[i] = v.result;
  };
  for (size_t i = 0; i + 1 < n; ++i) look(i);
  while (!ranks.empty()) {
    const auto lowest = std::min_element(ranks.begin(), ranks.end());  // the leftmost of equals
    if (*lowest == kNoRank) return;
    const auto i = static_cast<size_t>(lowest - ranks.begin());
    symbols[i].id = results[i];
    symbols[i].length += symbols[i + 1].length;
    const auto behind = static_cast<std::ptrdiff_t>(i);
    symbols.erase(symbols.begin() + behind + 1);
    ranks.erase(ranks.begin() + behind);
    results.erase(results.begin() + behind);
    if (i > 0) look(i - 1);
    if (i < ranks.size()) look(i);
  }
}

void Bpe::merge_long(BpeScratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto worse = [](const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  const auto found = [&](int32_t left, int32_t right) {
    return merges_.find(static_cast<uint32_t>(symbols[static_cast<size_t>(left)].id),
                        static_cast<uint32_t>(symbols[static_cast<size_t>(right)].id));
  };
  const auto n = static_cast<int32_t>(symbols.size());
  heap.clear();
  for (int32_t i = 0; i < n; ++i) {
    symbols[static_cast<size_t>(i)].previous = i - 1;
    symbols[static_cast<size_t>(i)].next = i + 1 < n ? i + 1 : -1;
    if (i + 1 == n) break;
    if (const PairTable::Value v = found(i, i + 1); v.result >= 0) heap.push_back({v.rank, i, v.result});
  }
  std::make_heap(heap.begin(), heap.end(), worse);
  const auto offer = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const PairTable::Value v = found(left, right);
    if (v.result < 0) return;
    heap.push_back({v.rank, left, v.result});
    std::push_heap(heap.begin(), heap.end(), worse);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), worse);
    const BpeScratch::Candidate best = heap.back();
    heap.pop_back();
    BpeScratch::Symbol& left = symbols[static_cast<size_t>(best.position)];
    if (left.id < 0 || left.next < 0) continue;
    if (found(best.position, left.next).result != best.result) continue;  // one of the two has changed since
    BpeScratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    left.id = best.result;
    left.length += right.length;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = best.position;
    offer(left.previous, best.position);
    offer(best.position, left.next);
  }
}

}  // namespace hayfork::engine
