#include "runs/report/site/token_strip.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "base/utf8.h"
#include "runs/token_losses.h"

namespace hayfork::runs {
namespace {

constexpr size_t kMostBars = 120;             // neighbours share a bar beyond
constexpr size_t kHead = 240, kTail = 60;     // tokens written out as text
constexpr double kLevels[] = {0.5, 1, 2, 4};  // nats, from which a token is shaded darker

struct Strip {
  std::string who;
  const SampleRow* sample = nullptr;
  TokenLosses losses;
  std::vector<char> key;  // one a token; empty: no key set is known
};

// The set that the sample's recipe names; else the only one that there is of its document.
std::optional<KeyTokensRow> key_set(PageContext& page, const SampleRow& sample) {
  const auto recipe = nlohmann::json::parse(sample.recipe_json.value_or(""), nullptr, false);
  const auto text = [&](const char* name) {
    return recipe.is_object() && recipe.contains(name) && recipe[name].is_string() ? recipe[name].get<std::string>()
                                                                                   : std::string();
  };
  const std::string evaluator = text("evaluator_sha256"), params = text("params_sha256");
  if (!evaluator.empty() && !params.empty()) return page.store.key_tokens(sample.doc_sha256, evaluator, params);
  std::vector<KeyTokensRow> all = page.reader.key_sets(sample.doc_sha256);
  if (all.size() != 1) return std::nullopt;
  return std::move(all.front());
}

std::vector<Strip> strips_of(PageContext& page, std::initializer_list<StripSide> sides) {
  std::vector<Strip> out;
  for (const StripSide& side : sides) {
    if (side.sample == nullptr) continue;
    auto losses = token_losses(side.sample->artefacts);
    if (!losses || losses->nll.empty()) continue;
    Strip strip{side.who, side.sample, std::move(*losses), {}};
    if (!strip.losses.places.empty()) {
      if (const auto set = key_set(page, *side.sample))
        strip.key = key_marks(strip.losses.places, key_spans(set->spans_json));
    }
    out.push_back(std::move(strip));
  }
  return out;
}

struct Sum {
  double nats = 0;
  int64_t n = 0, n_key = 0;
  double mean() const { return n > 0 ? nats / static_cast<double>(n) : 0; }
};

// Of tokens [begin, end): all that were scored, or key ones alone.
Sum sum_of(const Strip& strip, size_t begin, size_t end, bool only_key = false) {
  Sum out;
  for (size_t i = begin; i < end; ++i) {
    const bool key = i < strip.key.size() && strip.key[i] != 0;
    if (!std::isfinite(strip.losses.nll[i]) || (only_key && !key)) continue;
    out.nats += strip.losses.nll[i];
    ++out.n;
    out.n_key += key ? 1 : 0;
  }
  return out;
}

struct Bar {
  size_t begin = 0, end = 0;
  Sum sum;
};

std::vector<Bar> bars_of(const Strip& strip) {
  const size_t n = strip.losses.nll.size(), n_bars = std::min(n, kMostBars);
  std::vector<Bar> out;
  for (size_t b = 0; b < n_bars; ++b) {
    Bar bar{n * b / n_bars, n * (b + 1) / n_bars, {}};
    bar.sum = sum_of(strip, bar.begin, bar.end);
    out.push_back(bar);
  }
  return out;
}

std::string place_of(const Bar& bar) {
  return bar.end - bar.begin == 1 ? fmt::format("token {}", bar.begin)
                                  : fmt::format("tokens {}–{}", bar.begin, bar.end - 1);
}

// "4.5 nats a token over 4,095 (perplexity 90.02); 37 key tokens 1.75 (5.75)".
std::string summary(const Strip& strip) {
  const size_t n = strip.losses.nll.size();
  const Sum all = sum_of(strip, 0, n);
  std::string out = fmt::format("{:.3f} nats a token over {} (perplexity {:.4g})", all.mean(), format_count(all.n),
                                std::exp(all.mean()));
  if (strip.key.empty()) return out;
  const Sum key = sum_of(strip, 0, n, true);
  if (key.n == 0) return out + "; no key token";
  return out + fmt::format("; {} key tokens {:.3f} ({:.4g})", format_count(key.n), key.mean(), std::exp(key.mean()));
}

Graphic draw(PageContext& page, const Strip& strip, const std::vector<Bar>& bars, double highest) {
  const auto n = static_cast<double>(strip.losses.nll.size());
  Axis x = linear_axis("token", 0, n);
  std::erase_if(x.ticks, [n](const Tick& tick) { return tick.at > n; });
  x.high = n;
  for (Tick& tick : x.ticks) tick.label = unit_label(tick.at);
  Chart chart(330, 150, std::move(x), linear_axis("nats", 0, highest));
  for (size_t b = 0; b < bars.size(); ++b) {
    const Bar& bar = bars[b];
    std::string tip = place_of(bar);
    tip += bar.sum.n == 0 ? ": not scored" : fmt::format(": {:.3f} nats", bar.sum.mean());
    if (bar.sum.n_key > 0) tip += bar.end - bar.begin == 1 ? ", key" : fmt::format(", {} key", bar.sum.n_key);
    chart.bar(static_cast<int64_t>(b), static_cast<double>(bar.begin), static_cast<double>(bar.end), bar.sum.mean(),
              bar.sum.n_key > 0, tip);
  }
  return chart.draw(page.chart_id(), "Loss by token, " + strip.who, summary(strip));
}

void numbers(const std::vector<Bar>& bars, Html& html) {
  PlainTable table{"as a table", {"tokens", "scored", "nats a token", "key"}, {false, true, true, true}, {}};
  for (const Bar& bar : bars)
    table.rows.push_back({place_of(bar), std::to_string(bar.sum.n),
                          bar.sum.n > 0 ? fmt::format("{:.3f}", bar.sum.mean()) : "–", std::to_string(bar.sum.n_key)});
  details_table(html, table);
}

// Byte offsets of a text's code points, and its end.
std::vector<size_t> offsets_of(std::string_view text) {
  std::vector<size_t> out;
  for (size_t i = 0; i < text.size(); i += static_cast<size_t>(decode_utf8(text, i).length)) out.push_back(i);
  out.push_back(text.size());
  return out;
}

class TokenText {
 public:
  TokenText(const Strip& strip, std::string_view text, Html& html)
      : strip_(strip), text_(text), offsets_(offsets_of(text)), html_(html) {}

  void write() {
    const size_t n = strip_.losses.nll.size();
    html_.open("details");
    html_.element("summary", "token by token: the stronger the colour the dearer, key tokens underlined");
    html_.open("div", {{"class", "quote"}, {"dir", "auto"}});
    const bool fold = n > kHead + kTail;
    for (size_t i = 0; i < (fold ? kHead : n); ++i) token(i);
    if (fold) {
      html_.element("span", {{"class", "fold"}},
                    fmt::format(" … {} more tokens … ", format_count(static_cast<int64_t>(n - kHead - kTail))));
      done_ = strip_.losses.places[n - kTail].first;
      for (size_t i = n - kTail; i < n; ++i) token(i);
    }
    html_.close();
    html_.close();
  }

 private:
  std::string_view piece(int64_t begin, int64_t end) const {
    const auto last = static_cast<int64_t>(offsets_.size()) - 1;
    begin = std::clamp<int64_t>(begin, 0, last);
    end = std::clamp<int64_t>(end, begin, last);
    const size_t from = offsets_[static_cast<size_t>(begin)];
    return text_.substr(from, offsets_[static_cast<size_t>(end)] - from);
  }
  void token(size_t i) {
    const auto [begin, end] = strip_.losses.places[i];
    if (begin > done_) html_.text(piece(done_, begin));
    const std::string_view words = piece(std::max<int64_t>(begin, done_), end);
    done_ = std::max<int64_t>(done_, end);
    if (words.empty()) return;
    const float nll = strip_.losses.nll[i];
    const auto level = std::isfinite(nll)
                           ? std::upper_bound(std::begin(kLevels), std::end(kLevels), nll) - std::begin(kLevels)
                           : std::ptrdiff_t{0};
    const bool key = i < strip_.key.size() && strip_.key[i] != 0;
    html_.element(key ? "u" : "span", {{"class", fmt::format("n{}", level)}}, words);
  }

  const Strip& strip_;
  std::string_view text_;
  std::vector<size_t> offsets_;
  Html& html_;
  int64_t done_ = 0;  // code points written
};

}  // namespace

void token_strips(PageContext& page, Html& html, std::initializer_list<StripSide> sides) {
  const std::vector<Strip> strips = strips_of(page, sides);
  if (strips.empty()) return;
  std::vector<std::vector<Bar>> bars;
  double highest = 0;
  for (const Strip& strip : strips) {
    bars.push_back(bars_of(strip));
    for (const Bar& bar : bars.back()) highest = std::max(highest, bar.sum.mean());
  }
  html.open("div", {{"class", "pair strips"}});
  for (size_t i = 0; i < strips.size(); ++i) {
    const Strip& strip = strips[i];
    html.open("figure");
    html.open("figcaption");
    html.text("Loss by token, " + strip.who);
    html.close();
    html.open("div", {{"class", "scroll"}});
    html.graphic(draw(page, strip, bars[i], highest));
    html.close();
    html.element("p", {{"class", "note"}}, summary(strip));
    if (!page.options.redact && !strip.losses.places.empty() && strip.sample->prompt_text)
      TokenText(strip, strip.sample->prompt_text->text, html).write();
    numbers(bars[i], html);
    html.close();
  }
  html.close();
}

}  // namespace hayfork::runs
