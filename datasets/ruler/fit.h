// The search for a sample size (since upstream's 56ea4ef), shared by niah, vt, cwe and qa; and small text tools.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/ruler/ruler.h"

namespace hayfork::datasets {

struct FitRule {
  int64_t increment = 1;        // also the lower end of the search
  int64_t first_size = 0;       // of the sample that gives the tokens per unit; 0: the increment
  bool floor_division = false;  // cwe: upper = max(2·⌊L // r⌋, 2·increment), else max(⌊L / r · 3⌋, 2·increment)
};

// `probe(size)` draws a fresh sample and returns its tokens; `budget` is added for the comparison with `max_length`.
RulerSearch fit_size(const FitRule& rule, int64_t max_length, int64_t budget,
                     const std::function<int64_t(int64_t)>& probe);

struct LinearRule {
  int64_t increment = 1;    // the first size, and the step
  int64_t most = 0;         // sizes end there; 0: they do not
  bool looks_back = false;  // essays: the size that was tried is compared with `most`, else the next one
};
// The paper's search: size after size until one is too long, then one step back; a size that is exactly as long as
// allowed ends it a step too high, as upstream's does. `probe` also counts the right answer.
RulerSearch fit_linear(const LinearRule& rule, int64_t max_length, int64_t budget,
                       const std::function<int64_t(int64_t)>& probe);

// Python's repr of a list of texts: what the paper's qa and vt append for their count.
std::string python_list(const std::vector<std::string>& texts);

std::string replace_all(std::string text, std::string_view from, std::string_view to);
std::string join(const std::vector<std::string>& parts, std::string_view separator);
// Names of the form {name} replaced, each once, all at the same time (as Python's str.format).
std::string fill(std::string_view text, const std::vector<std::pair<std::string, std::string>>& values);

}  // namespace hayfork::datasets
