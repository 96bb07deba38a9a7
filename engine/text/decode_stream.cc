#include "engine/text/decode_stream.h"

#include <algorithm>

#include "base/utf8.h"

namespace hayfork::engine {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";

// Whether `bytes`, read with replacement of what is invalid, end in U+FFFD. Requires: not empty.
bool ends_in_replacement(std::string_view bytes) {
  size_t lead = bytes.size() - 1;
  while (lead > 0 && bytes.size() - lead < 4 && (static_cast<unsigned char>(bytes[lead]) & 0xC0) == 0x80) --lead;
  const DecodedChar c = decode_utf8(bytes, lead);
  if (!c.valid || lead + static_cast<size_t>(c.length) != bytes.size()) return true;
  return c.code_point == 0xFFFD;
}

}  // namespace

std::optional<std::string> ByteDecodeStream::push(int32_t id) {
  append_(id, pending_);
  if (pending_.empty() || ends_in_replacement(pending_)) return std::nullopt;
  return replace_invalid_utf8(std::exchange(pending_, {}));
}

std::string ByteDecodeStream::finish() {
  return replace_invalid_utf8(std::exchange(pending_, {}));
}

std::optional<std::string> WindowDecodeStream::push(int32_t id) {
  all_.push_back(id);
  if (prefix_.empty() && !window_.empty()) {
    std::string decoded = decode_(window_);
    if (!decoded.ends_with(kReplacement)) {
      prefix_ = std::move(decoded);
      prefix_count_ = window_.size();
    }
  }
  window_.push_back(id);
  const std::string text = decode_(window_);
  if (text.size() <= prefix_.size() || text.ends_with(kReplacement) || !text.starts_with(prefix_)) return std::nullopt;
  std::string fresh = text.substr(prefix_.size());
  window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(prefix_count_));
  prefix_count_ = window_.size();
  prefix_ = decode_(window_);
  emitted_ += fresh;
  return fresh;
}

std::string WindowDecodeStream::finish() {
  const std::string whole = decode_(all_);
  // What is out agrees with the whole text, or differs from some byte on: go on behind the part that agrees, at a
  // border between characters.
  size_t same = static_cast<size_t>(std::mismatch(emitted_.begin(), emitted_.end(), whole.begin(), whole.end()).first -
                                    emitted_.begin());
  if (same < emitted_.size()) same = std::min(emitted_.size(), whole.size());
  while (same > 0 && same < whole.size() && (static_cast<unsigned char>(whole[same]) & 0xC0) == 0x80) ++same;
  return whole.substr(same);
}

}  // namespace hayfork::engine
