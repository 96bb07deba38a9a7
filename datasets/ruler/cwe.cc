// common_words_extraction.py: a numbered list in which ten words occur more often than the rest, with one example.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "datasets/ruler/fit.h"
#include "datasets/ruler/generators.h"

namespace hayfork::datasets {
namespace {

constexpr std::string_view kTemplate =
    "Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones that "
    "appear "
    "most often.\n{context}\nQuestion: What are the 10 most common words in the above list?";
constexpr std::string_view kPrefix = " Answer: The top 10 words that appear most often in the list are:";
constexpr int64_t kCommon = 10;

std::string numbered(const std::vector<std::string>& words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) out += (i > 0 ? " " : "") + std::to_string(i + 1) + ". " + words[i];
  return out;
}

class CweGenerator : public RulerGenerator {
 public:
  CweGenerator(const RulerTask& task, const RulerSources& sources, const RulerOptions& options)
      : RulerGenerator(task, sources, options), words_(*sources.words) {
    if (is(RulerProtocol::lm_eval))
      start_.orders.shuffle(words_);
    else
      PythonRandom(options_.seed).shuffle(words_);
    template_ = fill(options_.model_template, {{"task_template", std::string(kTemplate)}});
    if (linear()) {
      searches_.push_back(fit_linear({kIncrement, static_cast<int64_t>(words_.size())}, limit(),
                                     task_.tokens_to_generate, [&](int64_t size) {
                                       const RulerSample sample = build(size, start_);
                                       return tokens(sample.example + whole(sample) + " " + numbered(sample.outputs));
                                     }));
      if (searches_[0].size < kIncrement) does_not_fit(searches_[0].probes[0].second);
      return;
    }
    searches_.push_back(fit_size({.increment = kIncrement, .first_size = 4096, .floor_division = true}, limit(),
                                 task_.tokens_to_generate,
                                 [&](int64_t size) { return tokens(whole(build(size, start_))); }));
  }

  RulerSample draw(RulerState& state) const override {
    int64_t size = searches_[0].size, smallest = std::numeric_limits<int64_t>::max();
    for (int64_t tries = 0; tries < kMostTries;) {
      RulerSample sample = build(size, state);
      sample.length = tokens(whole(sample)) + task_.tokens_to_generate;
      if (sample.length <= limit()) {
        sample.index = state.next++;
        if (is(RulerProtocol::lm_eval)) {
          sample.example.pop_back();  // the line feed between the two
          sample.answer_prefix = "\n\n" + std::string(kPrefix.substr(1));
        }
        return sample;
      }
      smallest = std::min(smallest, sample.length);
      if (size > kIncrement)
        size -= kIncrement;
      else
        ++tries;
    }
    does_not_fit(smallest);
  }

 private:
  static constexpr int64_t kIncrement = 10;

  struct List {
    std::string text;
    std::vector<std::string> common;
  };

  static std::string whole(const RulerSample& sample) { return sample.input + sample.answer_prefix; }

  List make_list(int64_t n, int64_t common_times, int64_t other_times, RulerState& state) const {
    const std::vector<std::string>* from = &words_;
    if (n > static_cast<int64_t>(words_.size())) {
      from = sources_.english_words;
      if (from == nullptr || n > static_cast<int64_t>(from->size()))
        throw Error(ErrorCode::usage, ErrorSubject::data, "ruler_cwe needs more words than the lists have",
                    {"length " + std::to_string(options_.max_length) + ", a probe of " + std::to_string(n) + " words",
                     "the lists have " + std::to_string(words_.size()),
                     "give upstream's english_words.json with --english-words"});
    }
    std::vector<std::string> chosen;
    for (const size_t i : state.python.sample(from->size(), static_cast<size_t>(n))) chosen.push_back((*from)[i]);
    List list;
    const auto n_common = std::min<size_t>(kCommon, chosen.size());
    list.common.assign(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(n_common));
    std::vector<std::string> all;
    for (int64_t k = 0; k < common_times; ++k) all.insert(all.end(), list.common.begin(), list.common.end());
    for (int64_t k = 0; k < other_times; ++k)
      all.insert(all.end(), chosen.begin() + static_cast<std::ptrdiff_t>(n_common), chosen.end());
    if (is(RulerProtocol::lm_eval))
      state.orders.shuffle(all);
    else
      permute(all, state);
    list.text = numbered(all);
    return list;
  }

  RulerSample build(int64_t size, RulerState& state) const {
    const bool small = options_.max_length < 4096;
    const List example = small ? make_list(20, 3, 1, state) : make_list(40, 10, 3, state);
    const List list = small ? make_list(size, 6, 1, state) : make_list(size, 30, 3, state);
    RulerSample sample;
    sample.size = size;
    sample.outputs = list.common;
    sample.answer_prefix = kPrefix;
    sample.example = fill(template_, {{"context", example.text}}) + std::string(kPrefix) + (linear() ? "" : " ") +
                     numbered(example.common) + "\n";
    sample.input = fill(template_, {{"context", list.text}});
    if (!is(RulerProtocol::lm_eval)) sample.input.insert(0, std::exchange(sample.example, {}));
    return sample;
  }

  std::vector<std::string> words_;  // shuffled
  std::string template_;
};

}  // namespace

std::unique_ptr<RulerGenerator> make_ruler_cwe(const RulerTask& task, const RulerSources& sources,
                                               const RulerOptions& options) {
  HAY_CHECK(sources.words != nullptr);
  return std::make_unique<CweGenerator>(task, sources, options);
}

}  // namespace hayfork::datasets
