// The kinds of needle: what is hidden, what is asked, what is a right answer. A kind is wording and drawing alone;
// where needles go and how long prompts are is niah.cc's. Wordings are part of the prompts: changing one is a new
// version.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tasks/tasks.h"

namespace hayfork::tasks {

struct Needle {
  std::string key, value;  // "amber-lantern", "4821374"; both may be empty
  std::string text;        // with the blank or line feed it opens with
};

// One seed's question: the needles (the asked one first, or all of them), and the frame.
struct Riddle {
  std::vector<Needle> needles;
  std::string before, after, answer_start;
  std::vector<std::string> targets;
};

struct NiahKind {
  std::string name, summary;
  int64_t answer_tokens = 0;       // the budget
  std::vector<std::string> stops;  // for the model
  std::vector<MetricDef> metrics;  // the first one is the primary
  bool keyed = false;              // further needles with other keys may stand beside the asked one
  int64_t min_needles = 1;         // those that belong to the question
  bool random = false;             // a seed changes the needle
  bool noise = false;              // hidden in noise sentences unless a haystack is named

  // Needle number `index` of a riddle: an asked one (0…min_needles−1), or one with a key that is not in `used`.
  // Requires: index < min_needles or keyed.
  std::function<Needle(Rng& rng, int64_t index, const std::vector<Needle>& used)> draw;
  std::function<Riddle(std::vector<Needle> needles)> ask;
  std::function<std::vector<MetricValue>(const std::string& response, const std::vector<std::string>& targets)> judge;
};

const std::vector<NiahKind>& niah_kinds();
// Throws: usage listing the kinds.
const NiahKind& find_niah_kind(const std::string& name);

}  // namespace hayfork::tasks
