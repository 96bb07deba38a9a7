#include "engine/text/aligned_text.h"

#include "base/error.h"
#include "base/utf8.h"
#include "engine/text/unicode.h"

namespace hayfork::engine {

AlignedText::AlignedText(std::string_view text, int32_t origin, bool tracked)
    : text_(text), origin_(origin), tracked_(tracked) {
  if (!tracked) return;
  align_.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const uint32_t length = unicode::decode(text, i).length;
    const int32_t begin = origin + static_cast<int32_t>(i);
    align_.insert(align_.end(), length, {begin, begin + static_cast<int32_t>(length)});
    i += length;
  }
}

void AlignedText::transform(std::span<const CharChange> changes, size_t removed) {
  std::string out;
  out.reserve(text_.size());
  std::vector<ByteRange> align;
  if (tracked_) align.reserve(align_.size());
  size_t at = 0;  // the old character that the next change replaces
  const auto step = [&] {
    if (tracked_ && at < text_.size()) at += unicode::decode(text_, at).length;
  };
  for (size_t i = 0; i < removed; ++i) step();
  for (const CharChange& change : changes) {
    const size_t before = out.size();
    append_utf8(out, change.c);
    if (!tracked_) continue;
    ByteRange from{origin_, origin_};
    if (change.change > 0) {
      if (at > 0) from = align_[at - 1];
    } else if (at < align_.size()) {
      from = align_[at];
    }
    align.insert(align.end(), out.size() - before, from);
    for (int i = change.change; i <= 0; ++i) step();
  }
  text_ = std::move(out);
  align_ = std::move(align);
}

void AlignedText::prepend(std::string_view head) {
  if (text_.empty() || head.empty()) return;
  if (tracked_) align_.insert(align_.begin(), head.size(), ByteRange(align_.front()));
  text_.insert(0, head);
}

void AlignedText::replace(std::span<const std::pair<size_t, size_t>> matches, std::string_view content) {
  if (matches.empty()) return;
  std::string out;
  out.reserve(text_.size() + content.size() * matches.size());
  std::vector<ByteRange> align;
  size_t done = 0;
  for (const auto& [begin, end] : matches) {
    out.append(text_, done, begin - done);
    out += content;
    if (tracked_) {
      align.insert(align.end(), align_.begin() + static_cast<std::ptrdiff_t>(done),
                   align_.begin() + static_cast<std::ptrdiff_t>(begin));
      align.insert(align.end(), content.size(), end > 0 ? align_[end - 1] : ByteRange{origin_, origin_});
    }
    done = end;
  }
  out.append(text_, done);
  if (tracked_) align.insert(align.end(), align_.begin() + static_cast<std::ptrdiff_t>(done), align_.end());
  text_ = std::move(out);
  align_ = std::move(align);
}

AlignedText AlignedText::slice(size_t begin, size_t end) const {
  HAY_CHECK(begin <= end && end <= text_.size());
  AlignedText out;
  out.text_.assign(text_, begin, end - begin);
  out.tracked_ = tracked_;
  out.origin_ = origin_;
  if (tracked_ && begin < end) {
    out.align_.assign(align_.begin() + static_cast<std::ptrdiff_t>(begin),
                      align_.begin() + static_cast<std::ptrdiff_t>(end));
    out.origin_ = out.align_.front().first;
  }
  return out;
}

}  // namespace hayfork::engine
