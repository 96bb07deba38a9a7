// "Did you mean": the known word nearest to one that is not known.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hayfork::cli {

// Damerau-Levenshtein distance (adjacent swaps count one), on bytes.
int edit_distance(std::string_view a, std::string_view b);
// The nearest candidates, best first, at most three; none when nothing is near (distance > a third of the length, and
// neither begins the other).
std::vector<std::string> nearest(std::string_view word, std::span<const std::string> candidates);
// "did you mean a, b or c?", or `otherwise`.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates, const std::string& otherwise);

}  // namespace hayfork::cli
