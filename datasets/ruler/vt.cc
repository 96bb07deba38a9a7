// variable_tracking.py: a chain of assignments in noise, with one worked example before it.
#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "base/error.h"
#include "datasets/ruler/fit.h"
#include "datasets/ruler/generators.h"

namespace hayfork::datasets {
namespace {

constexpr std::string_view kTemplate =
    "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n{context}\nQuestion: Find "
    "all "
    "variables that are assigned the value {query} in the text above.";
constexpr std::string_view kPrefix =
    " Answer: According to the chain(s) of variable assignment in the text above, {num_v} variables are assigned the "
    "value {query}, they are: ";
constexpr std::string_view kUpperCase = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
constexpr size_t kHops = 4, kNames = kHops + 1;
constexpr std::string_view kExampleValue = "12345";

class VtGenerator : public RulerGenerator {
 public:
  VtGenerator(const RulerTask& task, const RulerSources& sources, const RulerOptions& options)
      : RulerGenerator(task, sources, options) {
    template_ = fill(options_.model_template, {{"task_template", std::string(kTemplate)}});
    if (linear()) prefix_ = replace_all(std::move(prefix_), "assigned", "assgined");  // as it was spelled then
    make_example();
    increment_ = options_.max_length < 4096 && !linear() ? 5 : 10;
    example_tokens_ = tokens(example_);
    const int64_t extra = example_tokens_ + task_.tokens_to_generate;
    if (linear()) {
      searches_.push_back(
          fit_linear({increment_}, limit(), extra, [&](int64_t size) { return count_answered(size, false); }));
      if (searches_[1].size < increment_)
        does_not_fit(searches_[1].probes.empty() ? extra + 1 : searches_[1].probes[0].second);
    } else {
      searches_.push_back(fit_size({.increment = increment_}, limit(), extra,
                                   [&](int64_t size) { return tokens(whole(must_build(size, false))); }));
    }
  }

  RulerSample draw(RulerState& state) const override {
    int64_t size = searches_.back().size, smallest = std::numeric_limits<int64_t>::max();
    const int64_t most = is(RulerProtocol::p0) ? 10 * kMostTries : kMostTries;  // p0 never shrinks
    for (int64_t tries = 0; tries < most;) {
      // Names that collide make upstream's chain builder fail; it then shrinks as if the sample had not fitted.
      if (std::optional<RulerSample> sample = build(size, false, state)) {
        if (!linear()) insert_example(*sample, state);
        sample->length = tokens(whole(*sample)) + task_.tokens_to_generate + (linear() ? example_tokens_ : 0);
        if (sample->length <= limit()) {
          if (linear()) insert_example(*sample, state);
          sample->index = state.next++;
          return *std::move(sample);
        }
        smallest = std::min(smallest, sample->length);
      }
      if (size > increment_ && !is(RulerProtocol::p0))
        size -= increment_;
      else
        ++tries;
    }
    does_not_fit(smallest);
  }

 private:
  static std::string whole(const RulerSample& sample) { return sample.input + sample.answer_prefix; }

  // The paper's count holds the answer, as Python prints a list.
  int64_t count_answered(int64_t size, bool example) {
    const RulerSample sample = must_build(size, example);
    return tokens(whole(sample) + " " + python_list(sample.outputs));
  }

  // The worked example goes between the model's template and the task's.
  void insert_example(RulerSample& sample, RulerState& state) const {
    std::string example = is(RulerProtocol::p0) ? " " + example_ : new_example(state);
    example += linear() ? "\n\n" : "\n";
    const size_t at = sample.input.find(kTemplate.substr(0, 20));
    HAY_CHECK(at != std::string::npos);
    sample.input.insert(at, example);
    if (is(RulerProtocol::lm_eval)) sample.answer_prefix.pop_back();
  }

  RulerSample must_build(int64_t size, bool example) {
    std::optional<RulerSample> sample = build(size, example, start_);
    if (!sample)
      throw Error(ErrorCode::usage, ErrorSubject::general,
                  "ruler_vt drew one variable name twice while it sized its samples",
                  {"seed " + std::to_string(options_.seed), "upstream's generator ends here", "use another seed"});
    return *std::move(sample);
  }

  // Nothing when more names had to be drawn because two were equal: the last chain is then incomplete.
  std::optional<std::vector<std::string>> chain_names(bool example, RulerState& state) const {
    std::vector<std::string> names;
    std::set<std::string> distinct;
    while (names.size() < kNames || distinct.size() < kNames) {
      names.push_back(state.python.choices(kUpperCase, example ? 3 : 5));
      distinct.insert(names.back());
    }
    if (names.size() == kNames) return names;
    if (!example || linear())
      for (size_t chain = 0; chain * kNames < names.size(); ++chain) state.numpy.randint(10000, 99999);
    return std::nullopt;
  }

  std::optional<RulerSample> build(int64_t size, bool example, RulerState& state) const {
    const std::optional<std::vector<std::string>> names = chain_names(example, state);
    if (!names) return std::nullopt;
    const std::string value =
        example && !linear() ? std::string(kExampleValue) : std::to_string(state.numpy.randint(10000, 99999));
    std::vector<std::string> chain = {"VAR " + (*names)[0] + " = " + value};
    for (size_t i = 0; i < kHops; ++i) chain.push_back("VAR " + (*names)[i + 1] + " = VAR " + (*names)[i] + " ");

    std::vector<std::string> sentences(static_cast<size_t>(size), std::string(kRulerNoise) + (linear() ? "\n" : ""));
    if (linear() && sentences.size() <= chain.size()) sentences = pieces(size);
    if (sentences.size() < chain.size()) return std::nullopt;
    std::vector<size_t> at = state.python.sample(sentences.size(), chain.size());
    std::sort(at.begin(), at.end());
    for (size_t i = 0; i < chain.size(); ++i)
      sentences.insert(sentences.begin() + static_cast<std::ptrdiff_t>(at[i] + i), chain[i]);
    const std::string context = replace_all(join(sentences, linear() ? " " : "\n"), ". \n", ".\n");

    RulerSample sample;
    sample.size = size;
    sample.outputs = *names;
    sample.input = fill(example ? example_template_ : template_, {{"context", context}, {"query", value}});
    sample.answer_prefix = fill(prefix_, {{"num_v", std::to_string(kNames)}, {"query", value}});
    return sample;
  }

  // Too few lines for a chain: p0 puts it between their sentences.
  static std::vector<std::string> pieces(int64_t lines) {
    std::vector<std::string> out;
    for (int64_t i = 0; i < lines; ++i) {
      for (size_t from = 0; from < kRulerNoise.size();) {
        const size_t stop = kRulerNoise.find('.', from);
        out.emplace_back(kRulerNoise.substr(from, stop + 1 - from));
        from = stop + 1;
      }
      out.emplace_back("\n");
    }
    return out;
  }

  // The task's template, without the model's. p0 means to cut the model's off: it joins all words but the last before
  // the prefix, whether or not that one is the model's.
  void make_example_template() {
    example_template_ = kTemplate;
    if (!is(RulerProtocol::p0)) return;
    const size_t from = template_.find(kTemplate.substr(0, 20));
    HAY_CHECK(from != std::string::npos);
    std::vector<std::string> words(1);
    for (const char c : template_.substr(from)) {
      if (c != ' ' && !(c >= '\t' && c <= '\r'))
        words.back() += c;
      else if (!words.back().empty())
        words.emplace_back();
    }
    if (words.back().empty()) words.pop_back();
    words.pop_back();
    example_template_ = join(words, " ");
  }

  // The worked example is a sample of at most 500 tokens with its answer.
  void make_example() {
    make_example_template();
    const int64_t most = 500 - options_.template_tokens, budget = linear() ? task_.tokens_to_generate : 0;
    if (linear())
      searches_.push_back(fit_linear({5}, most, budget, [&](int64_t size) { return count_answered(size, true); }));
    else
      searches_.push_back(
          fit_size({.increment = 5}, most, 0, [&](int64_t size) { return tokens(whole(must_build(size, true))); }));
    int64_t size = searches_[0].size;
    for (int64_t tries = 0;;) {
      if (size < 5 || tries >= kMostTries)
        throw Error(ErrorCode::usage, ErrorSubject::general,
                    "ruler_vt's worked example does not fit the 500 tokens it may have",
                    {"", "this tokenizer needs more; no length changes that", "use a tokenizer with longer tokens"});
      const std::optional<RulerSample> sample = build(size, true, start_);
      if (sample && tokens(whole(*sample)) + budget <= most) {
        example_ = whole(*sample) + " " + join(sample->outputs, " ") + (linear() ? "\n\n" : "\n");
        return;
      }
      if (size > 5 && !is(RulerProtocol::p0))
        size -= 5;
      else
        ++tries;
    }
  }

  // Fresh names and a fresh number, by replacing text wherever it stands.
  std::string new_example(RulerState& state) const {
    std::string text = example_;
    std::vector<std::string> names;
    for (size_t end = text.size(); names.size() < kNames;) {
      end = text.find_last_not_of(" \n", end - 1) + 1;
      const size_t start = text.find_last_of(" \n", end - 1) + 1;
      names.insert(names.begin(), text.substr(start, end - start));
      end = start;
    }
    for (const std::string& name : names)
      text = replace_all(std::move(text), name, state.python.choices(kUpperCase, static_cast<int>(name.size())));
    if (linear()) return text;
    return replace_all(std::move(text), kExampleValue, std::to_string(state.numpy.randint(10000, 99999)));
  }

  std::string template_, prefix_{kPrefix}, example_template_, example_;
  int64_t increment_ = 0, example_tokens_ = 0;
};

}  // namespace

std::unique_ptr<RulerGenerator> make_ruler_vt(const RulerTask& task, const RulerSources& sources,
                                              const RulerOptions& options) {
  return std::make_unique<VtGenerator>(task, sources, options);
}

}  // namespace hayfork::datasets
