// variable_tracking.py: a chain of assignments in noise, with one worked example before it.
#include <algorithm>
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
    make_example();
    increment_ = options_.max_length < 4096 ? 5 : 10;
    const int64_t extra = tokens(example_) + task_.tokens_to_generate;
    searches_.push_back(fit_size({.increment = increment_}, options_.max_length, extra,
                                 [&](int64_t size) { return tokens(whole(must_build(size, false))); }));
  }

  RulerSample draw(RulerState& state) const override {
    int64_t smallest = 0;
    for (int64_t size = searches_.back().size;;) {
      // Names that collide make upstream's chain builder fail; it then shrinks as if the sample had not fitted.
      if (std::optional<RulerSample> sample = build(size, false, state)) {
        const std::string example = new_example(state);
        const size_t at = sample->input.find(kTemplate.substr(0, 20));
        HAY_CHECK(at != std::string::npos);
        sample->input.insert(at, example + "\n");
        sample->length = tokens(whole(*sample)) + task_.tokens_to_generate;
        if (sample->length <= options_.max_length) {
          sample->index = state.next++;
          return *std::move(sample);
        }
        smallest = sample->length;
      }
      if (size <= increment_ && smallest > 0) does_not_fit(smallest);
      if (size > increment_) size -= increment_;
    }
  }

 private:
  static std::string whole(const RulerSample& sample) { return sample.input + sample.answer_prefix; }

  RulerSample must_build(int64_t size, bool example) {
    std::optional<RulerSample> sample = build(size, example, start_);
    if (!sample)
      throw Error(ErrorCode::usage, ErrorSubject::general,
                  "ruler_vt drew one variable name twice while it sized its samples",
                  {"seed " + std::to_string(options_.seed), "upstream's generator ends here", "use another seed"});
    return *std::move(sample);
  }

  // Nothing when more names had to be drawn because two were equal: the last chain is then incomplete.
  static std::optional<std::vector<std::string>> chain_names(bool example, RulerState& state) {
    std::vector<std::string> names;
    std::set<std::string> distinct;
    while (names.size() < kNames || distinct.size() < kNames) {
      names.push_back(state.python.choices(kUpperCase, example ? 3 : 5));
      distinct.insert(names.back());
    }
    if (names.size() == kNames) return names;
    if (!example)
      for (size_t chain = 0; chain * kNames < names.size(); ++chain) state.numpy.randint(10000, 99999);
    return std::nullopt;
  }

  std::optional<RulerSample> build(int64_t size, bool example, RulerState& state) const {
    const std::optional<std::vector<std::string>> names = chain_names(example, state);
    if (!names) return std::nullopt;
    const std::string value = example ? std::string(kExampleValue) : std::to_string(state.numpy.randint(10000, 99999));
    std::vector<std::string> chain = {"VAR " + (*names)[0] + " = " + value};
    for (size_t i = 0; i < kHops; ++i) chain.push_back("VAR " + (*names)[i + 1] + " = VAR " + (*names)[i] + " ");

    std::vector<std::string> sentences(static_cast<size_t>(size), std::string(kRulerNoise));
    if (sentences.size() < chain.size()) return std::nullopt;
    std::vector<size_t> at = state.python.sample(sentences.size(), chain.size());
    std::sort(at.begin(), at.end());
    for (size_t i = 0; i < chain.size(); ++i)
      sentences.insert(sentences.begin() + static_cast<std::ptrdiff_t>(at[i] + i), chain[i]);
    const std::string context = replace_all(join(sentences, "\n"), ". \n", ".\n");

    RulerSample sample;
    sample.size = size;
    sample.outputs = *names;
    sample.input = fill(example ? kTemplate : std::string_view(template_), {{"context", context}, {"query", value}});
    sample.answer_prefix = fill(kPrefix, {{"num_v", std::to_string(kNames)}, {"query", value}});
    return sample;
  }

  // The worked example is a sample of at most 500 tokens with its answer.
  void make_example() {
    searches_.push_back(
        fit_size({.increment = 5}, 500, 0, [&](int64_t size) { return tokens(whole(must_build(size, true))); }));
    for (int64_t size = searches_[0].size;;) {
      const RulerSample sample = must_build(size, true);
      if (tokens(whole(sample)) <= 500) {
        example_ = whole(sample) + " " + join(sample.outputs, " ") + "\n";
        return;
      }
      if (size <= 5) does_not_fit(500);
      size -= 5;
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
    return replace_all(std::move(text), kExampleValue, std::to_string(state.numpy.randint(10000, 99999)));
  }

  std::string template_, example_;
  int64_t increment_ = 0;
};

}  // namespace

std::unique_ptr<RulerGenerator> make_ruler_vt(const RulerTask& task, const RulerSources& sources,
                                              const RulerOptions& options) {
  return std::make_unique<VtGenerator>(task, sources, options);
}

}  // namespace hayfork::datasets
