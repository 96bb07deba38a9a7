// WikiText's spacing undone, and words and bytes counted, as lm-evaluation-harness's wikitext and c4 tasks do
// (lm_eval/tasks/wikitext/preprocess_wikitext.py).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hayfork::metrics {

std::string wikitext_detokenized(std::string_view page);
// Pieces between runs of white space, the empty ones at both ends included: " a b " has four.
int64_t count_words(std::string_view text);

}  // namespace hayfork::metrics
