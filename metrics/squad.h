// SQuAD's answer metrics (Rajpurkar et al. 2016, evaluate-v1.1.py) as transformers' squad_metrics has them: lower case,
// without ASCII punctuation and the words a, an, the, blanks run together.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hayfork::metrics {

std::string squad_normalized(std::string_view text);
// The best over all references: 1 when equal after normalization, else 0. Requires: references not empty.
double squad_exact(std::string_view prediction, const std::vector<std::string>& references);
// The best over all references: F1 of the words, clipped by their counts; without words 1 only if neither has any.
double squad_f1(std::string_view prediction, const std::vector<std::string>& references);

}  // namespace hayfork::metrics
