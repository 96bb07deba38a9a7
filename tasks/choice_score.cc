#include "tasks/choice_score.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "base/utf8.h"
#include "metrics/stats.h"
#include "tasks/fold.h"

namespace hayfork::tasks {
namespace {

SampleScore failed(std::string why) {
  SampleScore out;
  out.status = Status::failed;
  out.error = std::move(why);
  return out;
}

// numpy.argmax: the first of the largest.
size_t arg_max(std::span<const double> values) {
  return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

struct Mode {
  std::string name;
  std::vector<double> values;  // empty: cannot be had from what is there
};

// f(choice) for all; empty when one has nothing to give.
template <typename F>
Mode mode(const char* name, std::span<const ChoiceValue> choices, F f) {
  Mode out{name, {}};
  for (const ChoiceValue& choice : choices) {
    const std::optional<double> value = f(choice);
    if (!value) return {name, {}};
    out.values.push_back(*value);
  }
  return out;
}

std::optional<double> divided(const ChoiceValue& c, const std::optional<int64_t>& by) {
  if (!by || *by <= 0) return std::nullopt;
  return *c.logprob / static_cast<double>(*by);
}

std::vector<Mode> modes(std::span<const ChoiceValue> choices) {
  return {mode("acc", choices, [](const ChoiceValue& c) { return c.logprob; }),
          mode("acc_norm", choices, [](const ChoiceValue& c) { return divided(c, c.n_chars); }),
          mode("acc_bytes", choices, [](const ChoiceValue& c) { return divided(c, c.n_bytes); }),
          mode("acc_tokens", choices, [](const ChoiceValue& c) { return divided(c, c.n_tokens); }),
          mode("acc_mutual_info", choices,
               [](const ChoiceValue& c) -> std::optional<double> {
                 if (!c.uncond_logprob) return std::nullopt;
                 return *c.logprob - *c.uncond_logprob;
               }),
          mode("acc_ppl_full", choices, [](const ChoiceValue& c) -> std::optional<double> {
            if (!c.ctx_nll || !c.ctx_tokens || !c.n_tokens) return std::nullopt;
            return -(*c.ctx_nll - *c.logprob) / static_cast<double>(*c.ctx_tokens + *c.n_tokens);
          })};
}

std::string fault_of(const Document& document, std::span<const ChoiceValue> choices) {
  if (choices.empty()) return "there are no options";
  const bool needs_gold = document.option_scores.empty();
  if ((needs_gold && document.gold < 0) || document.gold >= static_cast<int64_t>(choices.size()))
    return "the right option is not there";
  for (size_t j = 0; j < choices.size(); ++j) {
    const ChoiceValue& c = choices[j];
    if (!c.logprob || !std::isfinite(*c.logprob) || (c.uncond_logprob && !std::isfinite(*c.uncond_logprob)) ||
        (c.ctx_nll && !std::isfinite(*c.ctx_nll)))
      return fmt::format("the log-probability of option {} is not finite", j + 1);
    if (c.n_chars.value_or(1) <= 0) return fmt::format("option {} is empty", j + 1);
  }
  return {};
}

double one_against_rest(std::span<const std::pair<double, double>> pairs, double cls) {
  double hits = 0, predicted = 0, real = 0;
  for (const auto& [pred, gold] : pairs) {
    predicted += pred == cls ? 1 : 0;
    real += gold == cls ? 1 : 0;
    hits += pred == cls && gold == cls ? 1 : 0;
  }
  return predicted + real == 0 ? 0 : 2 * hits / (predicted + real);
}

std::optional<double> metric_of(const FoldRow& row, const char* name) {
  for (const MetricValue& m : row.metrics)
    if (m.metric == name) return m.value;
  return std::nullopt;
}

std::vector<double> values_of(std::span<const FoldRow> rows, const std::string& name) {
  std::vector<double> out;
  for (const FoldRow& row : rows)
    if (const auto value = metric_of(row, name.c_str()); value && row.status == Status::ok) out.push_back(*value);
  return out;
}

Aggregate fold_f1(std::span<const FoldRow> rows) {
  std::vector<std::pair<double, double>> pairs;
  for (const FoldRow& row : rows) {
    if (row.status != Status::ok) continue;
    const auto pred = metric_of(row, "pred"), gold = metric_of(row, "gold");
    if (pred && gold) pairs.emplace_back(*pred, *gold);
  }
  Aggregate out;
  out.metric = "f1";
  out.n = static_cast<int64_t>(pairs.size());
  if (!pairs.empty())
    out.value = (one_against_rest(pairs, 0) + one_against_rest(pairs, 1) + one_against_rest(pairs, 2)) / 3;
  return out;
}

}  // namespace

void set_gold(Document& document, int64_t gold) {
  document.gold = gold;
  document.target = std::to_string(gold);
  document.answer = document.choices.at(static_cast<size_t>(gold));
}

std::string shortened(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  std::string cut = text.substr(0, most);
  cut.resize(cut.size() - incomplete_utf8_tail(cut));
  return cut + "…";
}

SampleScore score_choices(const Document& document, std::span<const ChoiceValue> choices, const std::string& primary,
                          const std::string& chosen_by) {
  SampleScore out;
  if (const std::string fault = fault_of(document, choices); !fault.empty()) {
    out = failed(fault);
    out.choices.assign(choices.begin(), choices.end());
    return out;
  }
  const bool has_gold = document.gold >= 0;
  const auto gold = static_cast<size_t>(has_gold ? document.gold : document.choices.size());
  size_t pred = 0;
  for (const Mode& m : modes(choices)) {
    if (m.values.empty()) continue;
    const size_t best = arg_max(m.values);
    if (m.name == chosen_by) pred = best;
    out.metrics.push_back({m.name, best == gold ? 1.0 : 0.0});
  }
  if (has_gold && choices[gold].n_bytes.value_or(0) > 0)
    out.metrics.push_back(
        {"bits_per_byte", -*choices[gold].logprob / static_cast<double>(*choices[gold].n_bytes) / std::numbers::ln2});
  for (const auto& [name, scores] : document.option_scores) out.metrics.push_back({name, scores.at(pred)});
  if (has_gold) out.metrics.push_back({"gold", static_cast<double>(gold)});
  out.metrics.push_back({"pred", static_cast<double>(pred)});
  for (const MetricValue& m : out.metrics)
    if (m.metric == primary) out.score = m.value;
  out.choices.assign(choices.begin(), choices.end());
  out.answer = shortened(document.choices[pred]);
  return out;
}

SampleScore score_continuation(const Document& document, std::span<const ChoiceValue> choices) {
  if (choices.size() != 1 || !choices[0].logprob || !std::isfinite(*choices[0].logprob) || !choices[0].greedy)
    return failed("the log-probability of the target is not there or not finite");
  SampleScore out;
  const double acc = *choices[0].greedy ? 1 : 0;
  out.score = acc;
  out.metrics = {{"acc", acc}, {"perplexity", *choices[0].logprob}};
  out.choices.assign(choices.begin(), choices.end());
  out.answer = *choices[0].greedy ? shortened(document.choices.at(0)) : "";
  return out;
}

std::vector<Aggregate> fold_choices(std::span<const FoldRow> rows, bool with_f1) {
  static constexpr Slicing kAll[] = {Slicing::all};
  std::vector<Aggregate> out;
  for (Aggregate& a : fold_means(rows, kAll)) {
    if (a.metric == "pred" || a.metric == "gold" || (with_f1 && a.metric == "f1")) continue;
    if (a.value && a.stderr_value) a.stderr_value = metrics::mean_of(values_of(rows, a.metric)).stderr_value;
    if (a.metric == "perplexity" && a.value) {
      const double value = std::exp(-*a.value);
      const auto low = a.ci_high, high = a.ci_low;
      a.stderr_value = a.stderr_value ? std::optional(*a.stderr_value * value) : std::nullopt;  // delta method
      a.ci_low = low ? std::optional(std::exp(-*low)) : std::nullopt;
      a.ci_high = high ? std::optional(std::exp(-*high)) : std::nullopt;
      a.value = value;
    }
    out.push_back(std::move(a));
  }
  if (with_f1) out.push_back(fold_f1(rows));
  std::sort(out.begin(), out.end(), [](const Aggregate& a, const Aggregate& b) {
    return std::tie(a.slice, a.metric, a.filter) < std::tie(b.slice, b.metric, b.filter);
  });
  return out;
}

}  // namespace hayfork::tasks
