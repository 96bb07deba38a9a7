// One NIAH prompt in ids: frame, haystack with its needles, question; exactly as many tokens as asked for.
#pragma once

#include <cstdint>
#include <vector>

#include "tasks/haystack_ids.h"
#include "tasks/niah_kinds.h"
#include "tasks/text_ids.h"

namespace hayfork::tasks {

enum class Placement {
  overwrite,  // a needle takes the place of as many haystack tokens: every other token keeps its position
  insert,     // the haystack moves on
};

// A riddle in ids; the same for every length and depth of its seed.
struct RiddleIds {
  Riddle riddle;
  Frame frame;
  Ids before, after;
  Ids after_stop;  // what follows a haystack of whole sentences: its last full stop, and `after`
  std::vector<Ids> needles;
  int64_t start = 0;           // first haystack token
  std::vector<double> spread;  // a draw in [0, 1) for each needle that has no place of its own in the grid
};

struct PlacedNeedle {
  int64_t at = 0, tokens = 0;  // in the prompt
  double depth_real = 0;       // percent
  Edge edge = Edge::inside;
};

struct NiahPrompt {
  Ids ids;
  std::vector<PlacedNeedle> needles;  // in the riddle's order
  int64_t question_tok = 0;           // first token after the haystack
  bool repeated = false;              // the haystack went round
  bool whole = false;                 // the haystack ends with a sentence
};

// `n_grid` needles belong to the question: they stand at depth, depth + (100 − depth)/n_grid, …; the others where their
// draws say, the same for every depth. Requires: prompt_tokens ≥ smallest_prompt().
NiahPrompt build_niah_prompt(const HaystackIds& haystack, const RiddleIds& riddle, Placement placement, int64_t n_grid,
                             int64_t prompt_tokens, double depth_pct);

// Whether the needle's tokens are others than those its text has among its neighbours (the tokenizer joins or cuts at a
// border, or the place was found on other tokens).
bool is_split(const engine::Tokenizer& tokenizer, const Ids& prompt, const PlacedNeedle& placed, const Ids& needle);

// The fewest prompt tokens in which all needles are sure to find a place.
int64_t smallest_prompt(const RiddleIds& riddle, Placement placement);

}  // namespace hayfork::tasks
