#include "engine/text/unicode.h"

#include <algorithm>
#include <array>

#include "engine/text/unicode_tables.h"

namespace hayfork::engine::unicode {
namespace {

constexpr uint32_t kLimit = 0x110000;

uint16_t class_of_category(Category c) {
  switch (c) {
    case Lu:
    case Lt:
      return kLetter | kUpperSide;
    case Ll:
      return kLetter | kLowerSide;
    case Lm:
    case Lo:
      return kLetter | kUpperSide | kLowerSide;
    case Mn:
    case Mc:
    case Me:
      return kMark | kUpperSide | kLowerSide;
    case Nd:
    case Nl:
    case No:
      return kNumber | kNumeric;
    default:
      return 0;
  }
}

// Two stages: 256 code points a block, equal blocks stored once.
class Table {
 public:
  explicit Table(const std::vector<uint16_t>& flat) {
    for (size_t base = 0; base < flat.size(); base += 256) {
      const auto begin = flat.begin() + static_cast<std::ptrdiff_t>(base);
      size_t block = 0;
      while (block * 256 < values_.size() &&
             !std::equal(begin, begin + 256, values_.begin() + static_cast<std::ptrdiff_t>(block * 256)))
        ++block;
      if (block * 256 == values_.size()) values_.insert(values_.end(), begin, begin + 256);
      stage_[base / 256] = static_cast<uint16_t>(block);
    }
  }
  uint16_t operator[](char32_t c) const {
    return c < kLimit ? values_[static_cast<size_t>(stage_[c >> 8]) << 8 | (c & 0xFF)] : 0;
  }

 private:
  std::array<uint16_t, kLimit / 256> stage_{};
  std::vector<uint16_t> values_;
};

template <typename Runs>
std::vector<uint16_t> expand_runs(const Runs& runs) {
  std::vector<uint16_t> flat(kLimit);
  for (size_t i = 0; i < runs.size(); ++i) {
    const uint32_t end = i + 1 < runs.size() ? runs[i + 1] >> 8 : kLimit;
    std::fill(flat.begin() + (runs[i] >> 8), flat.begin() + end, static_cast<uint16_t>(runs[i] & 0xFF));
  }
  // Runs pass over the surrogates; no text holds them.
  std::fill(flat.begin() + 0xD800, flat.begin() + 0xE000, uint16_t{0});
  return flat;
}

template <typename Pairs>
Ranges to_ranges(const Pairs& pairs) {
  Ranges out;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) out.emplace_back(pairs[i], pairs[i + 1]);
  return out;
}

template <typename Pairs>
void add_bit(std::vector<uint16_t>& flat, const Pairs& pairs, uint16_t bit) {
  for (const auto& [first, last] : to_ranges(pairs))
    for (char32_t c = first; c <= last; ++c) flat[c] |= bit;
}

std::vector<uint16_t> build_classes() {
  std::vector<uint16_t> flat = expand_runs(kCategoryRuns);
  for (uint16_t& value : flat) value = class_of_category(static_cast<Category>(value));
  for (const auto& [first, last] : to_ranges(kNumericExtra))
    for (char32_t c = first; c <= last; ++c) flat[c] ^= kNumeric;
  add_bit(flat, kWhiteSpace, kSpace);
  add_bit(flat, kWordRust, kWord);
  add_bit(flat, kPunctuation, kPunct);
  add_bit(flat, kAccents, kAccent);
  for (const char c : std::string_view("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")) flat[static_cast<size_t>(c)] |= kPunct;
  flat['\r'] |= kLineEnd;
  flat['\n'] |= kLineEnd;
  return flat;
}

struct Classes {
  Classes() : Classes(build_classes()) {}
  explicit Classes(const std::vector<uint16_t>& flat) : table(flat) { std::copy_n(flat.begin(), 128, ascii.begin()); }
  Table table;
  std::array<uint16_t, 128> ascii{};
};

const Classes& classes() {
  static const Classes instance;
  return instance;
}

const Table& categories() {
  static const Table table(expand_runs(kCategoryRuns));
  return table;
}

const Table& scripts() {
  static const Table table(expand_runs(kScriptRuns));
  return table;
}

constexpr std::array<std::string_view, kCategories> kNames = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co"};

}  // namespace

namespace detail {
const uint16_t* const kAsciiClass = classes().ascii.data();
}

uint16_t char_class_slow(char32_t c) {
  return classes().table[c];
}
Category category(char32_t c) {
  return static_cast<Category>(categories()[c]);
}
uint8_t script_class(char32_t c) {
  return static_cast<uint8_t>(scripts()[c]);
}

char32_t lower_case(char32_t c) {
  const auto run = std::lower_bound(kLowerCase.begin(), kLowerCase.end(), c,
                                    [](const LowerRun& r, char32_t value) { return r.last < value; });
  if (run == kLowerCase.end() || c < run->first || (c - run->first) % run->step != 0) return c;
  return static_cast<char32_t>(static_cast<int32_t>(c) + run->difference);
}

Ranges category_ranges(std::string_view name) {
  Ranges out;
  for (size_t i = 0; i < kCategoryRuns.size(); ++i) {
    const std::string_view category = kNames[kCategoryRuns[i] & 0xFF];
    if (category != name && !(name.size() == 1 && category[0] == name[0])) continue;
    const char32_t first = kCategoryRuns[i] >> 8;
    const char32_t last = (i + 1 < kCategoryRuns.size() ? kCategoryRuns[i + 1] >> 8 : kLimit) - 1;
    if (!out.empty() && out.back().second + 1 == first) {
      out.back().second = last;
    } else {
      out.emplace_back(first, last);
    }
  }
  return out;
}

Ranges white_space_ranges() {
  return to_ranges(kWhiteSpace);
}
Ranges alphabetic_ranges() {
  return to_ranges(kAlphabetic);
}

Ranges word_ranges() {
  return to_ranges(kWordRegex);
}

}  // namespace hayfork::engine::unicode
