#include "engine/text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace hayfork::engine {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& s) { return s.empty(); });
}

int StopMatcher::completed_at(std::string_view text) const {
  int best = -1;
  for (size_t i = 0; i < stops_.size(); ++i) {
    if (!text.ends_with(stops_[i])) continue;
    if (best < 0 || stops_[i].size() > stops_[static_cast<size_t>(best)].size()) best = static_cast<int>(i);
  }
  return best;
}

size_t StopMatcher::held_length(std::string_view text) const {
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(text.size(), stop.size() - 1); n > longest; --n) {
      if (std::string_view(stop).starts_with(text.substr(text.size() - n))) longest = n;
    }
  }
  return longest;
}

std::string StopMatcher::feed(std::string_view text) {
  if (hit()) return {};
  const size_t known = held_.size();
  std::string all = std::exchange(held_, {});
  all += text;
  for (size_t end = known + 1; end <= all.size(); ++end) {
    hit_ = completed_at(std::string_view(all).substr(0, end));
    if (hit()) return all.substr(0, end - hit_text().size());
  }
  const size_t sure = all.size() - held_length(all);
  held_ = all.substr(sure);
  all.resize(sure);
  return all;
}

std::string StopMatcher::finish() {
  return hit() ? std::string() : std::exchange(held_, {});
}

}  // namespace hayfork::engine
