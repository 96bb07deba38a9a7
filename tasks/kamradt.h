// Where Kamradt's tester puts needles (gkamradt/LLMTest_NeedleInAHaystack at 7b90d285, needlehaystack/
// llm_needle_haystack_tester.py and its multi-needle sister), token for token, with its quirks: the depth is a share of
// the haystack without the needle, the search goes back only, to an id of the bare full stop, and to 0 when none is
// there.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tasks/text_ids.h"

namespace hayfork::tasks {

struct KamradtContext {
  Ids ids;
  std::vector<int64_t> needle_at;  // index of each needle's first token, in the finished context
};

// `haystack`: ids of the trimmed and re-encoded text; cut to length − buffer − the needles' tokens. Several needles
// stand (100 − depth)/n apart; each search sees the list as the needles before it left it.
// Requires: needles not empty, 0 ≤ depth_pct ≤ 100. Throws: usage when the needles alone do not fit.
KamradtContext kamradt_context(std::span<const int32_t> haystack, std::span<const Ids> needles,
                               std::span<const int32_t> full_stops, int64_t length, int64_t buffer, double depth_pct);

// The trimming: `length` tokens of the text, decoded and encoded again (cutting inside a character leaves U+FFFD).
Ids kamradt_haystack(const engine::Tokenizer& tokenizer, std::string_view text, int64_t length);

// Depth list of its sigmoid interval: n points of linspace(0, 100), 0 and 100 kept, the rest
// round(100 / (1 + e^(−0.1 (x − 50))), 3). At that commit a flipped sign lists the inner ones from the far end; as a
// set they are the same, and here they ascend.
std::vector<double> sigmoid_depths(int64_t n);

}  // namespace hayfork::tasks
