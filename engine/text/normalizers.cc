#include "engine/text/normalizers.h"

#include <algorithm>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/text/byte_level.h"
#include "engine/text/component_json.h"
#include "engine/text/precompiled.h"
#include "engine/text/unicode.h"
#include "engine/text/unicode_normalization.h"

namespace hayfork::engine {
namespace {

template <typename F>
void for_each_char(std::string_view text, F&& f) {
  for (size_t i = 0; i < text.size();) {
    const unicode::Decoded c = unicode::decode(text, i);
    f(c.code);
    i += c.length;
  }
}

// Keeps the characters for which `keep` holds; each kept one takes over those removed behind it.
template <typename Keep>
void filter(AlignedText& text, Keep&& keep) {
  std::vector<CharChange> changes;
  size_t removed_at_start = 0;
  for_each_char(text.text(), [&](char32_t c) {
    if (keep(c)) {
      changes.push_back({c, 0});
    } else if (changes.empty()) {
      ++removed_at_start;
    } else {
      --changes.back().change;
    }
  });
  text.transform(changes, removed_at_start);
}

template <typename Map>
void map_chars(AlignedText& text, Map&& map) {
  std::vector<CharChange> changes;
  for_each_char(text.text(), [&](char32_t c) { changes.push_back({map(c), 0}); });
  text.transform(changes);
}

class Form final : public Normalizer {
 public:
  explicit Form(NormalForm form) : form_(form) {}
  void apply(AlignedText& text) const override {
    if (!leaves_alone(text.text())) text.transform(normalize_changes(text.text(), form_));
  }
  bool leaves_alone(std::string_view text) const override { return surely_normalized(text, form_); }

 private:
  NormalForm form_;
};

class Lowercase final : public Normalizer {
 public:
  void apply(AlignedText& text) const override {
    std::vector<CharChange> changes;
    for_each_char(text.text(), [&](char32_t c) {
      if (c == 0x130) {  // the only character with two in lower case
        changes.push_back({'i', 0});
        changes.push_back({0x307, 1});
      } else {
        changes.push_back({unicode::lower_case(c), 0});
      }
    });
    text.transform(changes);
  }
  bool leaves_alone(std::string_view text) const override {
    bool alone = true;
    for_each_char(text, [&](char32_t c) { alone = alone && c != 0x130 && unicode::lower_case(c) == c; });
    return alone;
  }
};

class Strip final : public Normalizer {
 public:
  explicit Strip(const nlohmann::json& json)
      : left_(get_bool(json, "strip_left", true)), right_(get_bool(json, "strip_right", true)) {}
  void apply(AlignedText& text) const override {
    std::vector<CharChange> changes;
    for_each_char(text.text(), [&](char32_t c) { changes.push_back({c, 0}); });
    const auto white = [](const CharChange& c) { return (unicode::char_class(c.c) & unicode::kSpace) != 0; };
    const size_t size = changes.size();
    size_t begin = 0;
    size_t end = size;
    while (left_ && begin < end && white(changes[begin])) ++begin;
    while (right_ && begin < end && white(changes[end - 1])) --end;
    if (begin == 0 && end == size) return;
    if (end > begin) changes[end - 1].change = -static_cast<int>(size - end);
    text.transform(std::span(changes).subspan(begin, end - begin), begin);
  }
  bool leaves_alone(std::string_view text) const override { return text.empty(); }

 private:
  bool left_, right_;
};

class StripAccents final : public Normalizer {
 public:
  void apply(AlignedText& text) const override {
    filter(text, [](char32_t c) { return (unicode::char_class(c) & unicode::kAccent) == 0; });
  }
  bool leaves_alone(std::string_view text) const override {
    return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  }
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(const nlohmann::json& json) : head_(get_string(json, "prepend")) {}
  void apply(AlignedText& text) const override { text.prepend(head_); }
  bool leaves_alone(std::string_view text) const override { return text.empty() || head_.empty(); }

 private:
  std::string head_;
};

class Replace final : public Normalizer {
 public:
  explicit Replace(const nlohmann::json& json) : pattern_(json), content_(get_string(json, "content")) {}
  void apply(AlignedText& text) const override { text.replace(pattern_.find_all(text.text()), content_); }
  bool leaves_alone(std::string_view text) const override {
    return text.empty() || (pattern_.literal() && text.find(pattern_.text()) == std::string_view::npos);
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

// SentencePiece's nmt rules: control characters go, other separators become spaces.
class Nmt final : public Normalizer {
 public:
  void apply(AlignedText& text) const override {
    filter(text, [](char32_t c) {
      const bool control =
          (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
      return !control;
    });
    map_chars(text, [](char32_t c) -> char32_t {
      const bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                         c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
      return space ? U' ' : c;
    });
  }
  bool leaves_alone(std::string_view text) const override { return text.empty(); }
};

class ByteLevelNormalizer final : public Normalizer {
 public:
  void apply(AlignedText& text) const override { to_byte_level(text); }
  bool leaves_alone(std::string_view text) const override { return text.empty(); }
};

class PrecompiledNormalizer final : public Normalizer {
 public:
  explicit PrecompiledNormalizer(const nlohmann::json& json) : map_(get_string(json, "precompiled_charsmap", "")) {}
  void apply(AlignedText& text) const override {
    if (const auto changes = map_.changes(text.text())) text.transform(*changes);
  }
  bool leaves_alone(std::string_view text) const override { return text.empty(); }

 private:
  PrecompiledMap map_;
};

class SequenceNormalizer final : public Normalizer {
 public:
  explicit SequenceNormalizer(const nlohmann::json& json) {
    for (const nlohmann::json& part : get_list(json, "normalizers")) {
      if (auto normalizer = make_normalizer(part)) parts_.push_back(std::move(normalizer));
    }
  }
  void apply(AlignedText& text) const override {
    for (const auto& part : parts_) part->apply(text);
  }
  bool leaves_alone(std::string_view text) const override {
    return std::all_of(parts_.begin(), parts_.end(), [&](const auto& part) { return part->leaves_alone(text); });
  }

 private:
  std::vector<std::unique_ptr<const Normalizer>> parts_;
};

}  // namespace

std::unique_ptr<const Normalizer> make_normalizer(const nlohmann::json& json) {
  if (json.is_null()) return nullptr;
  const std::string type = component_type(json, "normalizer");
  if (type == "Sequence") return std::make_unique<SequenceNormalizer>(json);
  if (type == "NFC") return std::make_unique<Form>(NormalForm::nfc);
  if (type == "NFD") return std::make_unique<Form>(NormalForm::nfd);
  if (type == "NFKC") return std::make_unique<Form>(NormalForm::nfkc);
  if (type == "NFKD") return std::make_unique<Form>(NormalForm::nfkd);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "Strip") return std::make_unique<Strip>(json);
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Prepend") return std::make_unique<Prepend>(json);
  if (type == "Replace") return std::make_unique<Replace>(json);
  if (type == "Nmt") return std::make_unique<Nmt>();
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Precompiled") return std::make_unique<PrecompiledNormalizer>(json);
  unsupported_component("normalizer", type);
}

}  // namespace hayfork::engine
