// A haystack in tokens: encoded once, read from any start as if it went round in a circle, with the places in it where
// a sentence ends (found in the text, not by ids of a full stop). Immutable: threads may share it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "datasets/haystack.h"
#include "tasks/text_ids.h"

namespace hayfork::tasks {

// What stands just before a token.
enum class Edge : uint8_t {
  inside,    // the first part of a character that takes several tokens
  word,      // some character
  blank,     // white space, or white space comes next
  after,     // a sentence end and the white space after it
  sentence,  // a sentence end: . ! ? … or their CJK forms, closing quotes and brackets, and white space follows
};
std::string_view name(Edge edge);

class HaystackIds {
 public:
  // Texts above 32 MiB are cut there (a fixed size, so that a draw does not depend on the lengths asked for).
  HaystackIds(const datasets::Haystack& haystack, const engine::Tokenizer& tokenizer);

  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  // The n tokens from `start` on, going round; `edges` says what stands before each of them, the first being a sentence
  // end. Requires: 0 ≤ start < size().
  void read(int64_t start, int64_t n, Ids& ids, std::vector<Edge>& edges) const;

  // The same, but made of whole sentences: the n tokens from `start` up to some sentence end, then sentences of the
  // right length from elsewhere, the next ones that fit; its last token is followed by a full stop that is a token of
  // its own and is left out, for the text that comes next to open with it (tokenizers join ".\n"). Sentence ends are
  // those that white space follows. Returns false, changing nothing, when no sentences add up to n.
  bool read_sentences(int64_t start, int64_t n, Ids& ids, std::vector<Edge>& edges) const;

  // First token of the sentence that a draw u in [0, 1) falls before, by position in the text (so that tokenizers
  // agree): one that opens a line if there is any, else any sentence; 0 when there is none.
  int64_t sentence_start(double u) const;

 private:
  Ids ids_;
  std::vector<Edge> edges_;
  std::vector<int64_t> sentences_;                   // edges that are sentence ends, ascending
  std::vector<bool> after_stop_;                     // by edge: a sentence end whose token before is a bare full stop
  std::vector<std::pair<int64_t, int64_t>> starts_;  // byte offset, token index; ascending
  int64_t used_bytes_ = 0;
};

// Half-open ranges of token edges that a needle must not lie in.
struct Taken {
  int64_t begin, end;
};

// Where a needle goes among `edges` (one an edge, 0…edges.size()−1): the sentence end nearest to `target` within
// `reach` tokens on either side (the left one among equals), else one with its white space, else the nearest blank
// wherever it is, else the nearest edge between characters, else the nearest of all. Only edges p in [0, last] for
// which [p, p + span) meets no range of `taken` count. span 0: an insertion, which must not fall strictly inside a
// range.
struct Place {
  int64_t at = 0;
  Edge edge = Edge::inside;
};
// Requires: some edge is free.
Place find_place(std::span<const Edge> edges, int64_t last, int64_t target, int64_t reach, int64_t span,
                 std::span<const Taken> taken);

}  // namespace hayfork::tasks
