#include "tasks/haystack_ids.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "engine/text/tokenizer.h"
#include "tasks/doc_fields.h"

namespace hayfork::tasks {
namespace {

constexpr size_t kMaxBytes = size_t{32} << 20;

bool is_wide_stop(char32_t c) {
  return c == 0x3002 || c == 0xFF01 || c == 0xFF1F;
}
bool is_stop(char32_t c) {
  return c == '.' || c == '!' || c == '?' || c == 0x2026 || is_wide_stop(c);
}
bool is_closer(char32_t c) {
  static constexpr std::u32string_view kClosers = U"\"')]}\u2019\u201D\u00BB\u300D\u300F\uFF09";
  return kClosers.find(c) != std::u32string_view::npos;
}

// What the text so far ends with.
struct Ending {
  bool stop = false;      // a sentence end and its closing quotes
  bool wide = false;      // of a script that puts no white space after it
  bool gap = false;       // … and white space after that
  bool new_line = false;  // with a line feed in it
  bool blank = false;     // white space of any kind

  void add(char32_t c) {
    if (is_stop(c)) {
      *this = {.stop = true, .wide = is_wide_stop(c)};
    } else if (is_closer(c) && stop && !gap) {
      return;
    } else if (is_blank(c)) {
      gap = gap || stop;
      new_line = new_line || c == '\n';
      blank = true;
    } else {
      *this = {};
    }
  }

  Edge before(bool blank_next) const {
    if (stop && gap) return Edge::after;
    if (stop && (blank_next || wide)) return Edge::sentence;
    return blank || blank_next ? Edge::blank : Edge::word;
  }
};

std::string_view cut(std::string_view text) {
  if (text.size() <= kMaxBytes) return text;
  text = text.substr(0, kMaxBytes);
  return text.substr(0, text.size() - incomplete_utf8_tail(text));
}

bool is_free(int64_t p, int64_t span, std::span<const Taken> taken) {
  return std::none_of(taken.begin(), taken.end(), [&](const Taken& t) {
    return span == 0 ? t.begin < p && p < t.end : t.begin < p + span && p < t.end;
  });
}

}  // namespace

std::string_view name(Edge edge) {
  static constexpr std::array<std::string_view, 5> kNames = {"inside", "word", "blank", "after", "sentence"};
  return kNames[static_cast<size_t>(edge)];
}

HaystackIds::HaystackIds(const datasets::Haystack& haystack, const engine::Tokenizer& tokenizer) {
  const std::string_view text = cut(haystack.text);
  used_bytes_ = static_cast<int64_t>(text.size());
  engine::Encoding encoded = tokenizer.encode_with_offsets(text, {.add_special = false, .parse_special = false});
  ids_ = std::move(encoded.ids);
  if (ids_.empty())
    throw Error(ErrorCode::corrupt, ErrorSubject::data, "the haystack gives no tokens", {haystack.name, "", ""});
  edges_.resize(ids_.size(), Edge::inside);
  std::vector<std::pair<int64_t, int64_t>> lines, sentences;
  Ending ending;
  size_t at = 0;
  int32_t reached = 0;  // end of the tokens so far, in bytes
  for (size_t i = 0; i < ids_.size(); ++i) {
    const auto [begin, end] = encoded.byte_offsets[i];
    if (i > 0 && begin >= reached) {
      while (at < static_cast<size_t>(begin)) {
        const DecodedChar c = decode_utf8(text, at);
        ending.add(c.code_point);
        at += static_cast<size_t>(c.length);
      }
      const bool blank_next = at < text.size() && is_blank(decode_utf8(text, at).code_point);
      edges_[i] = ending.before(blank_next);
      if (edges_[i] >= Edge::after) sentences.emplace_back(begin, i);
      if (edges_[i] == Edge::after && ending.new_line && !blank_next) lines.emplace_back(begin, i);
    }
    reached = std::max(reached, end);
  }
  after_stop_.resize(ids_.size());
  for (size_t i = 1; i < ids_.size(); ++i) {
    if (edges_[i] != Edge::sentence) continue;
    sentences_.push_back(static_cast<int64_t>(i));
    after_stop_[i] = tokenizer.token_bytes(ids_[i - 1]) == ".";
  }
  edges_[0] = Edge::blank;  // where the text begins again after its end
  starts_ = lines.empty() ? std::move(sentences) : std::move(lines);
  starts_.insert(starts_.begin(), {0, 0});
}

void HaystackIds::read(int64_t start, int64_t n, Ids& ids, std::vector<Edge>& edges) const {
  HAY_CHECK(start >= 0 && start < size() && n >= 0);
  ids.clear();
  edges.clear();
  ids.reserve(static_cast<size_t>(n));
  edges.reserve(static_cast<size_t>(n));
  for (int64_t at = start; n > 0; at = 0) {
    const int64_t take = std::min(n, size() - at);
    ids.insert(ids.end(), ids_.begin() + at, ids_.begin() + at + take);
    edges.insert(edges.end(), edges_.begin() + at, edges_.begin() + at + take);
    n -= take;
  }
  if (!edges.empty()) edges[0] = Edge::sentence;
}

bool HaystackIds::read_sentences(int64_t start, int64_t n, Ids& ids, std::vector<Edge>& edges) const {
  constexpr int64_t kTries = 64;  // sentence ends, from the last that fits backwards
  HAY_CHECK(start >= 0 && start < size() && n >= 0);
  const int64_t want = n + 1;  // with the full stop that is left out
  const auto fits = [&](int64_t begin, int64_t length) {
    return begin + length < size() && after_stop_[static_cast<size_t>(begin + length)];
  };
  if (want < size() - start && fits(start, want)) {
    read(start, n, ids, edges);
    return true;
  }
  for (int64_t cut = want - 1, tries = 0; cut > 0 && tries < kTries; --cut) {
    const int64_t at = (start + cut) % size();
    if (edges_[static_cast<size_t>(at)] != Edge::sentence) continue;
    ++tries;
    const int64_t missing = want - cut;
    const auto next = std::lower_bound(sentences_.begin(), sentences_.end(), at);
    const auto shift = static_cast<size_t>(next - sentences_.begin());
    for (size_t k = 0; k < sentences_.size(); ++k) {
      const int64_t begin = sentences_[(shift + k) % sentences_.size()];
      if (!fits(begin, missing)) continue;
      read(start, cut, ids, edges);
      ids.insert(ids.end(), ids_.begin() + begin, ids_.begin() + begin + missing - 1);
      edges.insert(edges.end(), edges_.begin() + begin, edges_.begin() + begin + missing - 1);
      return true;
    }
  }
  return false;
}

int64_t HaystackIds::sentence_start(double u) const {
  const std::pair<int64_t, int64_t> drawn{static_cast<int64_t>(u * static_cast<double>(used_bytes_)), 0};
  const auto it = std::lower_bound(starts_.begin(), starts_.end(), drawn);
  return it == starts_.end() ? 0 : it->second;
}

Place find_place(std::span<const Edge> edges, int64_t last, int64_t target, int64_t reach, int64_t span,
                 std::span<const Taken> taken) {
  HAY_CHECK(last >= 0 && last < static_cast<int64_t>(edges.size()) && target >= 0 && target <= last);
  // One walk outwards; the nearest edge of each kind is remembered, and a sentence end within reach ends it.
  std::array<int64_t, 5> nearest;
  nearest.fill(-1);
  for (int64_t d = 0; d <= last; ++d) {
    for (const int64_t p : {target - d, target + d}) {
      if (p < 0 || p > last || !is_free(p, span, taken)) continue;
      int64_t& slot = nearest[static_cast<size_t>(edges[static_cast<size_t>(p)])];
      if (slot < 0) slot = p;
    }
    if (d >= reach && nearest[static_cast<size_t>(Edge::blank)] >= 0) break;
    if (d <= reach && nearest[static_cast<size_t>(Edge::sentence)] >= 0) break;
  }
  const auto within = [&](Edge e) {
    const int64_t p = nearest[static_cast<size_t>(e)];
    return p >= 0 && std::abs(p - target) <= reach;
  };
  for (const Edge e : {Edge::sentence, Edge::after})
    if (within(e)) return {nearest[static_cast<size_t>(e)], e};
  for (const Edge e : {Edge::blank, Edge::word, Edge::sentence, Edge::after, Edge::inside})
    if (nearest[static_cast<size_t>(e)] >= 0) return {nearest[static_cast<size_t>(e)], e};
  HAY_CHECK(false, "no free place for a needle");
  return {};
}

}  // namespace hayfork::tasks
