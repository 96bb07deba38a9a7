#include "tasks/niah_prompt.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "engine/text/tokenizer.h"

namespace hayfork::tasks {
namespace {

constexpr double kReach = 0.05;  // of the prompt: how far from its depth a needle may go for a sentence end

// The haystack while needles are put into it. Needles keep their number.
struct Field {
  Ids ids;
  std::vector<Edge> edges;
  std::vector<Taken> taken;
  std::vector<PlacedNeedle> needles;
  Placement placement;
  int64_t reach;

  void place(size_t number, const Ids& needle, double depth_pct) {
    const auto n = static_cast<int64_t>(needle.size()), size = static_cast<int64_t>(ids.size());
    const bool over = placement == Placement::overwrite;
    const int64_t last = over ? size - n - 1 : size - 1;  // some haystack follows every needle
    const auto target = static_cast<int64_t>(std::llround(depth_pct / 100 * static_cast<double>(last)));
    const Place p = find_place(edges, last, std::clamp<int64_t>(target, 0, last), reach, over ? n : 0, taken);
    if (over) {
      std::copy(needle.begin(), needle.end(), ids.begin() + p.at);
    } else {
      ids.insert(ids.begin() + p.at, needle.begin(), needle.end());
      edges.insert(edges.begin() + p.at, needle.size(), Edge::inside);
      for (Taken& t : taken)
        if (t.begin >= p.at) t.begin += n, t.end += n;
      for (PlacedNeedle& other : needles)
        if (other.tokens > 0 && other.at >= p.at) other.at += n;
    }
    taken.push_back({p.at, p.at + n});
    const double share = last > 0 ? static_cast<double>(p.at) / static_cast<double>(last) : 0;
    needles[number] = {p.at, n, 100 * share, p.edge};
  }
};

}  // namespace

bool is_split(const engine::Tokenizer& tokenizer, const Ids& prompt, const PlacedNeedle& placed, const Ids& needle) {
  constexpr int64_t kAround = 12;  // tokens on either side, enough for any word's border
  const auto size = static_cast<int64_t>(prompt.size());
  const int64_t from = std::clamp<int64_t>(placed.at - kAround, 0, size),
                to = std::clamp<int64_t>(placed.at + placed.tokens + kAround, from, size);
  const std::string text =
      tokenizer.decode(std::span(prompt).subspan(static_cast<size_t>(from), static_cast<size_t>(to - from)), false);
  const Ids again = tokenizer.encode(text, {.add_special = false, .parse_special = true});
  return std::search(again.begin(), again.end(), needle.begin(), needle.end()) == again.end();
}

int64_t smallest_prompt(const RiddleIds& riddle, Placement placement) {
  int64_t needles = 0, blocked = 0;
  for (size_t i = 0; i < riddle.needles.size(); ++i) {
    const auto n = static_cast<int64_t>(riddle.needles[i].size());
    needles += n;
    if (i > 0) blocked += 2 * n - 1;  // starting points that a placed needle of this length denies to the next
  }
  const int64_t hay =
      placement == Placement::insert ? needles + 1 : static_cast<int64_t>(riddle.needles[0].size()) + blocked + 1;
  return static_cast<int64_t>(riddle.before.size() + std::max(riddle.after.size(), riddle.after_stop.size())) + hay;
}

NiahPrompt build_niah_prompt(const HaystackIds& haystack, const RiddleIds& riddle, Placement placement, int64_t n_grid,
                             int64_t prompt_tokens, double depth_pct) {
  int64_t inserted = 0;
  if (placement == Placement::insert)
    for (const Ids& needle : riddle.needles) inserted += static_cast<int64_t>(needle.size());
  const auto room = [&](const Ids& after) {
    return prompt_tokens - inserted - static_cast<int64_t>(riddle.before.size() + after.size());
  };
  Field field{{},        {},
              {},        std::vector<PlacedNeedle>(riddle.needles.size()),
              placement, static_cast<int64_t>(kReach * static_cast<double>(prompt_tokens))};
  NiahPrompt out;
  out.whole = haystack.read_sentences(riddle.start, room(riddle.after_stop), field.ids, field.edges);
  const Ids& after = out.whole ? riddle.after_stop : riddle.after;
  const int64_t hay = room(after);
  HAY_CHECK(hay > 0);
  if (!out.whole) haystack.read(riddle.start, hay, field.ids, field.edges);
  // Those that do not move with the depth come first: then the prompts of a depth sweep differ in the asked needle
  // only.
  for (size_t i = static_cast<size_t>(n_grid); i < riddle.needles.size(); ++i)
    field.place(i, riddle.needles[i], 100 * riddle.spread[i]);
  for (int64_t i = 0; i < n_grid; ++i)
    field.place(static_cast<size_t>(i), riddle.needles[static_cast<size_t>(i)],
                depth_pct + static_cast<double>(i) * (100 - depth_pct) / static_cast<double>(n_grid));
  out.ids = riddle.before;
  out.ids.insert(out.ids.end(), field.ids.begin(), field.ids.end());
  out.question_tok = static_cast<int64_t>(out.ids.size());
  out.ids.insert(out.ids.end(), after.begin(), after.end());
  out.needles = std::move(field.needles);
  for (PlacedNeedle& needle : out.needles) needle.at += static_cast<int64_t>(riddle.before.size());
  out.repeated = hay > haystack.size();
  HAY_CHECK(static_cast<int64_t>(out.ids.size()) == prompt_tokens);
  return out;
}

}  // namespace hayfork::tasks
