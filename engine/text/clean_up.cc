#include "engine/text/clean_up.h"

#include <array>
#include <utility>

#include "engine/text/aligned_text.h"
#include "engine/text/regex.h"

namespace hayfork::engine {

std::string clean_up_spaces(std::string text) {
  static constexpr std::array<std::pair<const char*, const char*>, 10> kRules = {{{" .", "."},
                                                                                  {" ?", "?"},
                                                                                  {" !", "!"},
                                                                                  {" ,", ","},
                                                                                  {" ' ", "'"},
                                                                                  {" n't", "n't"},
                                                                                  {" 'm", "'m"},
                                                                                  {" 's", "'s"},
                                                                                  {" 've", "'ve"},
                                                                                  {" 're", "'re"}}};
  for (const auto& [from, to] : kRules) {
    AlignedText aligned(text, 0, false);
    aligned.replace(find_all(text, from), to);
    text = aligned.text();
  }
  return text;
}

}  // namespace hayfork::engine
