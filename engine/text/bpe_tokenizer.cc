#include "engine/text/bpe_tokenizer.h"

#include <algorithm>
#include <limits>
#include <map>

#include <fmt/format.h>

#include "base/digest.h"
#include "base/utf8.h"
#include "engine/text/byte_level.h"
#include "engine/text/clean_up.h"
#include "engine/text/decode_stream.h"
#include "engine/text/text_input.h"

namespace hayfork::engine {

// An encoding on its way, with the text that each added token took, white space around it included (by index of its
// id).
struct BpeTokenizer::Tracked {
  Encoding encoding;
  std::map<size_t, std::string> added;
};

// A scratch taken from the pool for one call, given back at its end.
class BpeTokenizer::Borrowed {
 public:
  explicit Borrowed(const BpeTokenizer& owner) : owner_(owner) {
    const std::lock_guard lock(owner.mutex_);
    if (owner.idle_.empty()) {
      scratch_ = std::make_unique<BpeScratch>();
    } else {
      scratch_ = std::move(owner.idle_.back());
      owner.idle_.pop_back();
    }
    scratch_->unknown_open = false;
  }
  ~Borrowed() {
    const std::lock_guard lock(owner_.mutex_);
    owner_.idle_.push_back(std::move(scratch_));
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  BpeScratch& operator*() const { return *scratch_; }

 private:
  const BpeTokenizer& owner_;
  std::unique_ptr<BpeScratch> scratch_;
};

BpeTokenizer::BpeTokenizer(BpeTokenizerParts parts, const TokenizerConfig& config, const TokenizerOptions& options)
    : parts_(std::move(parts)), clean_up_spaces_(options.clean_up_spaces && config.clean_up_spaces) {
  special_tokens_ = config.special_tokens;
  chat_templates_ = config.chat_templates;
  warnings_ = std::move(parts_.warnings);
  digest_ = parts_.digest;
  if (clean_up_spaces_) digest_ = sha256_hex(digest_ + " clean_up_spaces");
  if (parts_.decoder.byte_level_only()) build_byte_table();
  const auto id_of = [&](const char* name) -> std::optional<int32_t> {
    const auto token = special_tokens_.find(name);
    if (token == special_tokens_.end()) return std::nullopt;
    const std::optional<int32_t> id = token_to_id(token->second);
    if (!id) warnings_.push_back(fmt::format("{} \"{}\" is not in the vocabulary", name, printable(token->second)));
    return id;
  };
  bos_id_ = id_of("bos_token");
  eos_id_ = id_of("eos_token");
}

void BpeTokenizer::build_byte_table() {
  byte_ends_.reserve(static_cast<size_t>(vocab_size()));
  for (int32_t id = 0; id < vocab_size(); ++id) {
    if (const std::optional<std::string_view> text = decode_text(id, false)) {
      const std::optional<std::string> bytes = bytes_of_token(*text);
      byte_texts_ += bytes ? std::string_view(*bytes) : *text;
    }
    byte_ends_.push_back(static_cast<uint32_t>(byte_texts_.size()));
  }
}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (parts_.pre_tokenizer.needs_offsets()) return encode_with_offsets(text, options).ids;
  const TextInput input(text);
  const Borrowed scratch(*this);
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 8);
  if (options.add_special) ids = parts_.post_processor.prefix();
  for (const AddedTokens::Hit& hit : parts_.added.split_raw(input.text(), options.parse_special)) {
    if (hit.id >= 0) {
      ids.push_back(hit.id);
    } else {
      encode_segment(input.text().substr(hit.begin, hit.end - hit.begin), options, *scratch, ids);
    }
  }
  const std::vector<int32_t>& suffix = parts_.post_processor.suffix();
  if (options.add_special) ids.insert(ids.end(), suffix.begin(), suffix.end());
  return ids;
}

void BpeTokenizer::encode_segment(std::string_view text, const EncodeOptions& options, BpeScratch& scratch,
                                  std::vector<int32_t>& ids) const {
  std::optional<AlignedText> changed;
  if (parts_.normalizer && !parts_.normalizer->leaves_alone(text)) {
    changed.emplace(text, 0, false);
    parts_.normalizer->apply(*changed);
    text = changed->text();
  }
  if (!parts_.added.has_normalized()) return encode_pieces(text, scratch, ids);
  for (const AddedTokens::Hit& hit : parts_.added.split_normalized(text, options.parse_special)) {
    if (hit.id >= 0) {
      ids.push_back(hit.id);
    } else {
      encode_pieces(text.substr(hit.begin, hit.end - hit.begin), scratch, ids);
    }
  }
}

void BpeTokenizer::encode_pieces(std::string_view text, BpeScratch& scratch, std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  if (parts_.pre_tokenizer.only_cuts()) {
    parts_.pre_tokenizer.views(text, [&](std::string_view piece) { parts_.model.encode(piece, scratch, ids); });
    return;
  }
  for (const AlignedText& piece : parts_.pre_tokenizer.run(AlignedText(text, 0, false)))
    parts_.model.encode(piece.text(), scratch, ids);
}

Encoding BpeTokenizer::encode_with_offsets(std::string_view text, EncodeOptions options) const {
  const TextInput input(text);
  const Borrowed scratch(*this);
  Tracked tracked;
  Encoding& out = tracked.encoding;
  out.first_invalid_byte = input.first_invalid_byte();
  for (const AddedTokens::Hit& hit : parts_.added.split_raw(input.text(), options.parse_special)) {
    if (hit.id >= 0) {
      tracked.added.emplace(out.ids.size(), input.text().substr(hit.begin, hit.end - hit.begin));
      out.ids.push_back(hit.id);
      out.byte_offsets.emplace_back(hit.begin, hit.end);
    } else {
      encode_tracked(input.text(), hit.begin, hit.end, options, *scratch, tracked);
    }
  }
  finish_offsets(input.text(), tracked);
  if (!options.add_special) return std::move(out);
  const auto add = [&](const std::vector<int32_t>& ids, bool front) {
    out.ids.insert(front ? out.ids.begin() : out.ids.end(), ids.begin(), ids.end());
    for (auto* offsets : {&out.offsets, &out.byte_offsets})
      offsets->insert(front ? offsets->begin() : offsets->end(), ids.size(), {0, 0});
  };
  add(parts_.post_processor.prefix(), true);
  add(parts_.post_processor.suffix(), false);
  return std::move(out);
}

void BpeTokenizer::encode_tracked(std::string_view text, size_t begin, size_t end, const EncodeOptions& options,
                                  BpeScratch& scratch, Tracked& out) const {
  AlignedText segment(text.substr(begin, end - begin), static_cast<int32_t>(begin), true);
  if (parts_.normalizer) parts_.normalizer->apply(segment);
  for (const AddedTokens::Hit& hit : parts_.added.split_normalized(segment.text(), options.parse_special)) {
    AlignedText part = segment.slice(hit.begin, hit.end);
    if (hit.id >= 0) {
      out.added.emplace(out.encoding.ids.size(), part.text());
      out.encoding.ids.push_back(hit.id);
      out.encoding.byte_offsets.emplace_back(part.alignment().front().first, part.alignment().back().second);
      continue;
    }
    for (const AlignedText& piece : parts_.pre_tokenizer.run(std::move(part)))
      encode_aligned_piece(piece, scratch, out.encoding);
  }
}

void BpeTokenizer::encode_aligned_piece(const AlignedText& piece, BpeScratch& scratch, Encoding& out) const {
  std::vector<uint32_t> lengths;
  parts_.model.encode(piece.text(), scratch, out.ids, &lengths);
  // Lengths count the vocabulary's spelling: a byte-level character takes one or two bytes there.
  std::vector<ByteRange> spelled;
  if (parts_.model.byte_level()) {
    for (size_t i = 0; i < piece.text().size(); ++i) {
      const auto byte = static_cast<unsigned char>(piece.text()[i]);
      spelled.insert(spelled.end(), static_cast<size_t>(byte_char_length(byte)), piece.alignment()[i]);
    }
  }
  const std::vector<ByteRange>& from = parts_.model.byte_level() ? spelled : piece.alignment();
  size_t at = 0;
  for (const uint32_t length : lengths) {
    const size_t first = std::min(at, from.size() - 1);
    const size_t last = std::min(at + std::max<uint32_t>(length, 1) - 1, from.size() - 1);
    out.byte_offsets.emplace_back(from[first].first, from[last].second);
    at += length;
  }
}

// Code-point offsets from byte offsets, then the post-processor's trimming.
void BpeTokenizer::finish_offsets(std::string_view text, Tracked& tracked) const {
  Encoding& out = tracked.encoding;
  std::vector<int32_t> char_of(text.size() + 1);
  int32_t n = -1;
  for (size_t i = 0; i < text.size(); ++i) {
    n += (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    char_of[i] = n;
  }
  char_of[text.size()] = n + 1;
  out.offsets.reserve(out.ids.size());
  for (const auto& [begin, end] : out.byte_offsets)
    out.offsets.emplace_back(char_of[static_cast<size_t>(begin)], char_of[static_cast<size_t>(end)]);
  for (const bool add_prefix_space : parts_.post_processor.trims()) {
    for (size_t i = 0; i < out.ids.size(); ++i) {
      const auto added = tracked.added.find(i);
      const std::string spelled = added != tracked.added.end() ? added->second : token_text(out.ids[i]);
      out.offsets[i] = trim_offsets(out.offsets[i], spelled, i == 0, add_prefix_space);
    }
  }
}

std::optional<std::string_view> BpeTokenizer::decode_text(int32_t id, bool skip_special) const {
  std::string_view text;
  if (const AddedToken* added = parts_.added.by_id(id)) {
    text = added->pattern;
    if (skip_special && parts_.added.special_text(text)) return std::nullopt;
  } else if (parts_.model.vocabulary().has(id)) {
    text = parts_.model.vocabulary().text(id);
  } else {
    return std::nullopt;
  }
  return text;
}

void BpeTokenizer::append_bytes(int32_t id, bool skip_special, std::string& out) const {
  if (id < 0 || id >= vocab_size()) return;
  if (skip_special && parts_.added.by_id(id) != nullptr && !decode_text(id, true)) return;
  const auto i = static_cast<size_t>(id);
  const size_t begin = i == 0 ? 0 : byte_ends_[i - 1];
  out.append(byte_texts_, begin, byte_ends_[i] - begin);
}

std::string BpeTokenizer::decode_plain(std::span<const int32_t> ids, bool skip_special) const {
  if (parts_.decoder.byte_level_only()) {
    std::string bytes;
    for (const int32_t id : ids) append_bytes(id, skip_special, bytes);
    return find_invalid_utf8(bytes) ? replace_invalid_utf8(bytes) : bytes;
  }
  std::vector<std::string> tokens;
  for (const int32_t id : ids)
    if (const std::optional<std::string_view> text = decode_text(id, skip_special)) tokens.emplace_back(*text);
  return parts_.decoder.decode(std::move(tokens));
}

std::string BpeTokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text = decode_plain(ids, skip_special);
  return clean_up_spaces_ ? clean_up_spaces(std::move(text)) : text;
}

std::unique_ptr<DecodeStream> BpeTokenizer::stream(bool skip_special) const {
  if (parts_.decoder.byte_level_only()) {
    return std::make_unique<ByteDecodeStream>(
        [this, skip_special](int32_t id, std::string& out) { append_bytes(id, skip_special, out); });
  }
  return std::make_unique<WindowDecodeStream>(
      [this, skip_special](std::span<const int32_t> ids) { return decode_plain(ids, skip_special); });
}

int32_t BpeTokenizer::vocab_size() const {
  return std::max(parts_.model.vocabulary().id_limit(), parts_.added.id_limit());
}

std::string BpeTokenizer::token_text(int32_t id) const {
  if (const AddedToken* added = parts_.added.by_id(id)) return added->content;
  return parts_.model.vocabulary().has(id) ? std::string(parts_.model.vocabulary().text(id)) : std::string();
}

std::string BpeTokenizer::token_bytes(int32_t id) const {
  const std::optional<std::string_view> text = decode_text(id, false);
  if (!text) return {};
  return parts_.decoder.bytes(std::string(*text));
}

std::optional<int32_t> BpeTokenizer::token_to_id(std::string_view token) const {
  if (const std::optional<int32_t> id = parts_.added.find(token)) return id;
  const int32_t id = parts_.model.vocabulary().find(token);
  return id < 0 ? std::nullopt : std::optional(id);
}

bool BpeTokenizer::adds_bos() const {
  const std::vector<int32_t>& prefix = parts_.post_processor.prefix();
  return bos_id_ && std::find(prefix.begin(), prefix.end(), *bos_id_) != prefix.end();
}

std::string BpeTokenizer::kind() const {
  if (parts_.decoder.byte_level_only()) return "byte-level BPE";
  return parts_.model.vocabulary().find("<0x00>") >= 0 ? "BPE with byte fallback" : "BPE";
}

}  // namespace hayfork::engine
