// Stop strings over text that arrives in pieces: what can no longer belong to a stop string is released at once, the
// rest is held back. The stop string that is complete first ends the text; of several complete at the same byte, the
// longest. So the result does not depend on how the text was cut into pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hayfork::engine {

class StopMatcher {
 public:
  // Empty strings are ignored. Matching is on bytes.
  explicit StopMatcher(std::vector<std::string> stops);

  // Adds text and gives what is now certain to lie before any stop string. After a hit everything further is ignored.
  std::string feed(std::string_view text);
  // No more text will come: gives what was held back ("" after a hit).
  std::string finish();
  bool hit() const { return hit_ >= 0; }
  // The stop string that was found. Requires: hit().
  const std::string& hit_text() const { return stops_.at(static_cast<size_t>(hit_)); }

 private:
  int completed_at(std::string_view text) const;    // index of the longest stop string that `text` ends with, or -1
  size_t held_length(std::string_view text) const;  // longest end of `text` that begins some stop string

  std::vector<std::string> stops_;
  std::string held_;
  int hit_ = -1;
};

}  // namespace hayfork::engine
