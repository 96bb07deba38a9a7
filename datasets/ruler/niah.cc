// niah.py: needles among noise lines, essays or other needles.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/utf8.h"
#include "datasets/ruler/fit.h"
#include "datasets/ruler/generators.h"

namespace hayfork::datasets {
namespace {

constexpr std::string_view kTemplate =
    "Some special magic {type_needle_v} are hidden within the following text. Make sure to memorize it. I will quiz "
    "you "
    "about the {type_needle_v} afterwards.\n{context}\nWhat are all the special magic {type_needle_v} for {query} "
    "mentioned in the provided text?";
constexpr std::string_view kPrefix =
    " The special magic {type_needle_v} for {query} mentioned in the provided text are";

// round(linspace(0, 100, 40))
constexpr std::array<int, 40> kDepths = {0,  3,  5,  8,  10, 13, 15, 18, 21, 23, 26, 28, 31, 33,
                                         36, 38, 41, 44, 46, 49, 51, 54, 56, 59, 62, 64, 67, 69,
                                         72, 74, 77, 79, 82, 85, 87, 90, 92, 95, 97, 100};

// One value of one key: the wording turns singular in the whole template, the model's part included.
std::string singular(std::string text) {
  text = replace_all(std::move(text), "Some", "A");
  text = replace_all(std::move(text), "are all", "is");
  text = replace_all(std::move(text), "are", "is");
  return replace_all(std::move(text), "answers", "answer");
}

class NiahGenerator : public RulerGenerator {
 public:
  NiahGenerator(const RulerTask& task, const RulerSources& sources, const RulerOptions& options)
      : RulerGenerator(task, sources, options), n_keys_(std::max(task.n_keys, task.n_queries)) {
    const bool essay = task_.haystack == "essay";
    HAY_CHECK(!essay || (sources_.essays != nullptr && options_.split != nullptr));
    HAY_CHECK((task_.key_type != "words" && task_.value_type != "words") || sources_.pairs != nullptr);
    template_ = fill(options_.model_template, {{"task_template", std::string(kTemplate)}});
    prefix_ = kPrefix;
    type_ = task_.value_type;
    if (task_.n_queries * task_.n_values == 1) {
      template_ = singular(template_);
      prefix_ = singular(prefix_);
      type_.pop_back();
    }
    increment_ = essay ? 500 : options_.max_length < 4096 ? 5 : 25;
    if (linear()) {
      const int64_t most = essay ? static_cast<int64_t>(sources_.essays->size()) : 0;
      searches_.push_back(fit_linear({increment_, most, true}, limit(), task_.tokens_to_generate, [&](int64_t size) {
        const RulerSample sample = build(size, start_);
        return tokens(counted(sample) + join(sample.outputs, " "));
      }));
      if (searches_[0].size < (essay ? 0 : 1)) does_not_fit(searches_[0].probes[0].second);
    } else {
      searches_.push_back(fit_size({.increment = increment_}, limit(), task_.tokens_to_generate,
                                   [&](int64_t size) { return tokens(counted(build(size, start_))); }));
    }
  }

  RulerSample draw(RulerState& state) const override {
    int64_t size = searches_[0].size, smallest = std::numeric_limits<int64_t>::max();
    for (int64_t tries = 0; tries < kMostTries;) {
      RulerSample sample = build(size, state);
      sample.length = tokens(counted(sample)) + task_.tokens_to_generate;
      if (sample.length <= limit()) {
        if (linear())
          sample.index = state.next;
        else
          locate_answer(sample, whole(sample));
        ++state.next;
        return sample;
      }
      smallest = std::min(smallest, sample.length);
      if (size > increment_)
        size -= increment_;
      else
        ++tries;
    }
    does_not_fit(smallest);
  }

 private:
  static std::string whole(const RulerSample& sample) { return sample.input + sample.answer_prefix; }
  // lm-eval fits the text in front of the prefix.
  std::string counted(const RulerSample& sample) const {
    return is(RulerProtocol::lm_eval) ? sample.input : whole(sample);
  }

  std::string random_of(const std::string& type, RulerState& state) const {
    if (type == "numbers") return std::to_string(state.python.randint(1000000, 9999999));
    if (type == "uuids") return state.python.uuid4();
    return sources_.pairs->at(state.python.below(sources_.pairs->size()));
  }

  std::string needle(const std::string& key, const std::string& value) const {
    // The needle keeps the plural even where the question is singular.
    return "One of the special magic " + task_.value_type + " for " + key + " is: " + value + ".";
  }

  RulerSample build(int64_t size, RulerState& state) const {
    std::vector<std::string> keys, needles;
    std::vector<std::vector<std::string>> values;
    for (int64_t k = 0; k < n_keys_; ++k) {
      keys.push_back(random_of(task_.key_type, state));
      values.emplace_back();
      for (int64_t v = 0; v < task_.n_values; ++v) {
        values.back().push_back(random_of(task_.value_type, state));
        needles.push_back(needle(keys.back(), values.back().back()));
      }
    }
    permute(needles, state);
    const std::string context = task_.haystack == "essay" ? essay(size, needles, state) : lines(size, needles, state);

    RulerSample sample;
    sample.size = size;
    std::vector<std::string> asked;
    for (const size_t i : state.python.sample(static_cast<size_t>(n_keys_), static_cast<size_t>(task_.n_queries))) {
      asked.push_back(keys[i]);
      sample.outputs.insert(sample.outputs.end(), values[i].begin(), values[i].end());
    }
    std::string query = asked[0];
    if (asked.size() > 1) {
      const std::string last = asked.back();
      asked.pop_back();
      query = join(asked, ", ") + ", and " + last;
    }
    sample.input = fill(template_, {{"type_needle_v", type_}, {"context", context}, {"query", query}});
    sample.answer_prefix = fill(prefix_, {{"type_needle_v", type_}, {"query", query}});
    return sample;
  }

  std::string essay(int64_t n, const std::vector<std::string>& needles, RulerState& state) const {
    const std::shared_ptr<const std::vector<std::string>> sentences = essay_sentences(n);
    std::vector<size_t> at;
    for (const size_t i : state.python.sample(kDepths.size(), needles.size()))
      at.push_back(static_cast<size_t>(static_cast<double>(sentences->size()) * (kDepths[i] / 100.0)));
    std::sort(at.begin(), at.end());
    // Sentences up to a needle are one chunk; an empty chunk still gets its blank.
    std::vector<std::string> parts;
    size_t from = 0;
    for (size_t i = 0; i <= at.size(); ++i) {
      const size_t to = i < at.size() ? at[i] : sentences->size();
      parts.push_back(join({sentences->begin() + static_cast<std::ptrdiff_t>(from),
                            sentences->begin() + static_cast<std::ptrdiff_t>(to)},
                           " "));
      if (i < needles.size()) parts.push_back(needles[i]);
      from = to;
    }
    return join(parts, " ");
  }

  // Sentences of the first n words, which go round when there are fewer. Only a few sizes occur again and again.
  std::shared_ptr<const std::vector<std::string>> essay_sentences(int64_t n) const {
    const std::lock_guard lock(*mutex_);
    if (const auto it = cache_.find(n); it != cache_.end()) return it->second;
    const std::vector<std::string>& words = *sources_.essays;
    std::string text;
    // p0 ends where the essays do.
    if (linear()) n = std::min(n, static_cast<int64_t>(words.size()));
    for (int64_t i = 0; i < n; ++i) {
      if (i > 0) text += ' ';
      text += words[static_cast<size_t>(i) % words.size()];
    }
    text.erase(0, std::min(text.find_first_not_of(' '), text.size()));
    text.erase(text.find_last_not_of(' ') + 1);
    auto sentences = std::make_shared<const std::vector<std::string>>(options_.split(text));
    if (cache_.size() >= 8) cache_.clear();
    return cache_[n] = sentences;
  }

  std::string lines(int64_t n, const std::vector<std::string>& needles, RulerState& state) const {
    std::vector<std::string> sentences;
    for (int64_t i = 0; i < n; ++i) {
      if (task_.haystack == "noise") {
        sentences.emplace_back(kRulerNoise);
      } else {
        const std::string key = random_of(task_.key_type, state);
        sentences.push_back(needle(key, random_of(task_.value_type, state)));
      }
    }
    // The deepest place takes the first needle, so that the others' places stay where they were drawn.
    std::vector<size_t> at = state.python.sample(static_cast<size_t>(n), needles.size());
    std::sort(at.rbegin(), at.rend());
    for (size_t i = 0; i < at.size(); ++i)
      sentences.insert(sentences.begin() + static_cast<std::ptrdiff_t>(at[i]), needles[i]);
    return join(sentences, "\n");
  }

  void locate_answer(RulerSample& sample, const std::string& text) const {
    const std::string_view before = std::string_view(text).substr(0, text.find(sample.outputs[0]));
    sample.index = static_cast<int64_t>(count_code_points(before));
    if (options_.positions) sample.token_position_answer = tokens(before);
  }

  int64_t n_keys_, increment_;
  std::string template_, prefix_, type_;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
  mutable std::map<int64_t, std::shared_ptr<const std::vector<std::string>>> cache_;
};

}  // namespace

std::unique_ptr<RulerGenerator> make_ruler_niah(const RulerTask& task, const RulerSources& sources,
                                                const RulerOptions& options) {
  return std::make_unique<NiahGenerator>(task, sources, options);
}

}  // namespace hayfork::datasets
