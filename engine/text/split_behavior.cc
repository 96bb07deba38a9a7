#include "engine/text/split_behavior.h"

#include <algorithm>

#include "engine/text/component_json.h"

namespace hayfork::engine {
namespace {

Matches merge_equal(const std::vector<Segment>& segments) {
  Matches out;
  bool previous = false;
  for (const Segment& s : segments) {
    if (s.match == previous && !out.empty()) {
      out.back().second = s.end;
    } else {
      out.emplace_back(s.begin, s.end);
    }
    previous = s.match;
  }
  return out;
}

// A match joins the piece before it, unless that ended in a match too.
Matches merge_with_previous(const std::vector<Segment>& segments) {
  Matches out;
  bool previous = false;
  for (const Segment& s : segments) {
    if (s.match && !previous && !out.empty()) {
      out.back().second = s.end;
    } else {
      out.emplace_back(s.begin, s.end);
    }
    previous = s.match;
  }
  return out;
}

Matches merge_with_next(const std::vector<Segment>& segments) {
  Matches out;
  bool previous = false;
  for (auto s = segments.rbegin(); s != segments.rend(); ++s) {
    if (s->match && !previous && !out.empty()) {
      out.back().first = s->begin;
    } else {
      out.emplace_back(s->begin, s->end);
    }
    previous = s->match;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace

SplitBehavior parse_split_behavior(const std::string& name) {
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  bad_component("Split", "unknown behavior \"" + name + "\"");
}

std::vector<Segment> with_gaps(const Matches& matches, size_t size, bool invert) {
  std::vector<Segment> out;
  size_t done = 0;
  for (const auto& [begin, end] : matches) {
    if (begin != done) out.push_back({done, begin, invert});
    out.push_back({begin, end, !invert});
    done = end;
  }
  if (done != size) out.push_back({done, size, invert});
  return out;
}

Matches apply_behavior(const std::vector<Segment>& segments, SplitBehavior behavior) {
  Matches out;
  switch (behavior) {
    case SplitBehavior::removed:
      for (const Segment& s : segments)
        if (!s.match) out.emplace_back(s.begin, s.end);
      return out;
    case SplitBehavior::isolated:
      for (const Segment& s : segments) out.emplace_back(s.begin, s.end);
      return out;
    case SplitBehavior::contiguous:
      return merge_equal(segments);
    case SplitBehavior::merged_with_previous:
      return merge_with_previous(segments);
    case SplitBehavior::merged_with_next:
      return merge_with_next(segments);
  }
  return out;
}

}  // namespace hayfork::engine
