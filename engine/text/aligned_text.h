// Text on its way through normalizers and pre-tokenizers, together with where each byte came from. The rules for bytes
// that appear, vanish or merge are those of the reference library (tokenizers, NormalizedString), because tasks and
// golden values see the offsets. Tracking is optional: without it only the text is kept, which is much cheaper.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hayfork::engine {

using ByteRange = std::pair<int32_t, int32_t>;  // half-open, bytes of the original text

// One character of the new text: change 0 replaces one old character, 1 is inserted, -n replaces one and removes n
// more.
struct CharChange {
  char32_t c;
  int change;
};

class AlignedText {
 public:
  // `text` starts at byte `origin` of the original.
  AlignedText(std::string_view text, int32_t origin, bool tracked);

  const std::string& text() const { return text_; }
  bool tracked() const { return tracked_; }
  int32_t origin() const { return origin_; }
  // One range per byte of text(); empty when not tracked.
  const std::vector<ByteRange>& alignment() const { return align_; }

  // New text; the first `removed` old characters are dropped before the first change applies.
  void transform(std::span<const CharChange> changes, size_t removed = 0);
  void prepend(std::string_view head);  // nothing happens to an empty text
  // Each of the ascending, disjoint byte ranges becomes `content`.
  void replace(std::span<const std::pair<size_t, size_t>> matches, std::string_view content);
  AlignedText slice(size_t begin, size_t end) const;

 private:
  AlignedText() = default;
  std::string text_;
  std::vector<ByteRange> align_;
  int32_t origin_ = 0;
  bool tracked_ = false;
};

}  // namespace hayfork::engine
