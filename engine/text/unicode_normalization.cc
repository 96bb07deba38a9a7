#include "engine/text/unicode_normalization.h"

#include <algorithm>
#include <array>

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>
#include <unicode/unistr.h>

#include "base/error.h"
#include "engine/text/unicode.h"

namespace hayfork::engine {
namespace {

constexpr uint32_t kLimit = 0x110000;
constexpr char32_t kHangul = 0xAC00, kHangulCount = 11172, kL = 0x1100, kV = 0x1161, kT = 0x11A7;

// Which characters are old enough, and which can change or interact under each form.
struct Data {
  Data() {
    UErrorCode status = U_ZERO_ERROR;
    canonical = icu::Normalizer2::getNFCInstance(status);
    compatible = icu::Normalizer2::getNFKCInstance(status);
    static constexpr std::array<const char16_t*, 4> kPatterns = {
        u"[[:NFC_QC=No:][:NFC_QC=Maybe:][:^ccc=0:]]", u"[[:NFD_QC=No:][:^ccc=0:]]",
        u"[[:NFKC_QC=No:][:NFKC_QC=Maybe:][:^ccc=0:]]", u"[[:NFKD_QC=No:][:^ccc=0:]]"};
    icu::UnicodeSet age(icu::UnicodeString(u"[:age=9.0:]"), status);
    HAY_CHECK(U_SUCCESS(status), u_errorName(status));
    old.assign(kLimit, false);
    mark(age, old);
    for (size_t form = 0; form < 4; ++form) {
      icu::UnicodeSet set(icu::UnicodeString(kPatterns[form]), status);
      HAY_CHECK(U_SUCCESS(status), u_errorName(status));
      set.retainAll(age);
      active[form].assign(kLimit, false);
      mark(set, active[form]);
    }
  }
  static void mark(const icu::UnicodeSet& set, std::vector<bool>& bits) {
    for (int i = 0; i < set.getRangeCount(); ++i)
      std::fill(bits.begin() + set.getRangeStart(i), bits.begin() + set.getRangeEnd(i) + 1, true);
  }
  const icu::Normalizer2* canonical;
  const icu::Normalizer2* compatible;
  std::vector<bool> old;
  std::array<std::vector<bool>, 4> active;
};

const Data& data() {
  static const Data instance;
  return instance;
}

struct Pending {
  uint8_t combining_class;
  CharChange change;
};

uint8_t combining_class(char32_t c) {
  return data().old[c] ? data().canonical->getCombiningClass(static_cast<UChar32>(c)) : 0;
}

// Appends the full decomposition of c: its first character replaces c, the others are insertions.
void decompose(char32_t c, bool compatible, std::vector<Pending>& out) {
  if (c - kHangul < kHangulCount) {
    const char32_t index = c - kHangul;
    out.push_back({0, {kL + index / 588, 0}});
    out.push_back({0, {kV + index % 588 / 28, 1}});
    if (index % 28 != 0) out.push_back({0, {kT + index % 28, 1}});
    return;
  }
  icu::UnicodeString text;
  const icu::Normalizer2* tables = compatible ? data().compatible : data().canonical;
  if (!data().old[c] || !tables->getDecomposition(static_cast<UChar32>(c), text)) {
    out.push_back({combining_class(c), {c, 0}});
    return;
  }
  for (int32_t i = 0; i < text.length(); i = text.moveIndex32(i, 1)) {
    const auto part = static_cast<char32_t>(text.char32At(i));
    out.push_back({combining_class(part), {part, i > 0}});
  }
}

// Canonical order: stable by class within each run of non-starters.
void reorder(std::vector<Pending>& chars) {
  for (size_t begin = 0; begin < chars.size();) {
    if (chars[begin].combining_class == 0) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < chars.size() && chars[end].combining_class != 0) ++end;
    std::stable_sort(chars.begin() + static_cast<std::ptrdiff_t>(begin),
                     chars.begin() + static_cast<std::ptrdiff_t>(end),
                     [](const Pending& a, const Pending& b) { return a.combining_class < b.combining_class; });
    begin = end;
  }
}

// The composite of two characters, or -1.
int64_t compose_pair(char32_t a, char32_t b) {
  if (a >= kL && a < kL + 19 && b >= kV && b < kV + 21)
    return static_cast<int64_t>(kHangul + ((a - kL) * 21 + (b - kV)) * 28);
  if (a - kHangul < kHangulCount && (a - kHangul) % 28 == 0 && b > kT && b < kT + 28)
    return static_cast<int64_t>(a + (b - kT));
  if (!data().old[a] || !data().old[b]) return -1;
  const UChar32 composite = data().canonical->composePair(static_cast<UChar32>(a), static_cast<UChar32>(b));
  return composite >= 0 && data().old[static_cast<size_t>(composite)] ? composite : -1;
}

// Composition: a character joins the last starter unless something of the same or a higher class stands between.
void compose(std::vector<Pending>& chars) {
  size_t kept = 0;
  std::ptrdiff_t starter = -1;
  int last_class = -1;  // of the last kept character after the starter; -1 directly behind it
  for (const Pending& c : chars) {
    if (starter >= 0 && last_class < static_cast<int>(c.combining_class)) {
      CharChange& base = chars[static_cast<size_t>(starter)].change;
      if (const int64_t composite = compose_pair(base.c, c.change.c); composite >= 0) {
        base = {static_cast<char32_t>(composite), base.change + c.change.change - 1};
        continue;
      }
    }
    if (c.combining_class == 0) {
      starter = static_cast<std::ptrdiff_t>(kept);
      last_class = -1;
    } else {
      last_class = c.combining_class;
    }
    chars[kept++] = c;
  }
  chars.resize(kept);
}

}  // namespace

bool surely_normalized(std::string_view text, NormalForm form) {
  const std::vector<bool>& active = data().active[static_cast<size_t>(form)];
  for (size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const unicode::Decoded c = unicode::decode(text, i);
    if (active[c.code]) return false;
    i += c.length;
  }
  return true;
}

std::vector<CharChange> normalize_changes(std::string_view text, NormalForm form) {
  const std::vector<bool>& active = data().active[static_cast<size_t>(form)];
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const bool composed = form == NormalForm::nfc || form == NormalForm::nfkc;
  std::vector<CharChange> out;
  out.reserve(text.size());
  std::vector<Pending> run;
  char32_t base = 0;  // the inactive character that `run` begins with, while it stands there alone
  bool alone = false;
  const auto flush = [&] {
    if (!alone) {
      reorder(run);
      if (composed) compose(run);
    }
    for (const Pending& p : run) out.push_back(p.change);
    run.clear();
  };
  // Only active characters and the character before them can be part of a change: what lies between is copied.
  for (size_t i = 0; i < text.size();) {
    const unicode::Decoded c = unicode::decode(text, i);
    i += c.length;
    if (active[c.code]) {
      if (alone) {  // a composite before a mark comes apart first: the mark may belong in between
        run.clear();
        decompose(base, compatible, run);
        alone = false;
      }
      decompose(c.code, compatible, run);
      continue;
    }
    flush();
    base = c.code;
    alone = true;
    run.push_back({0, {base, 0}});
  }
  flush();
  return out;
}

}  // namespace hayfork::engine
