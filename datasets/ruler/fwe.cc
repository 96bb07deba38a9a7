// freq_words_extraction.py: coded words whose frequencies follow a zeta distribution; the first rank is noise.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "datasets/ruler/fit.h"
#include "datasets/ruler/generators.h"

namespace hayfork::datasets {
namespace {

constexpr std::string_view kTemplate =
    "Read the following coded text and track the frequency of each coded word. Find the three most frequently appeared "
    "coded words. {context}\nQuestion: Do not provide any explanation. Please ignore the dots '....'. What are the "
    "three "
    "most frequently appeared words in the above coded text?";
constexpr std::string_view kPrefix =
    " Answer: According to the coded text above, the three most frequently appeared words are:";
constexpr std::string_view kLowerCase = "abcdefghijklmnopqrstuvwxyz";
constexpr double kAlpha = 2.0, kZeta = 1.6449340668482264;  // ζ(2) = π²/6
constexpr int kCodedLength = 6;
constexpr int64_t kShortest = 100;  // two words: the noise and one to ask for

class FweGenerator : public RulerGenerator {
 public:
  FweGenerator(const RulerTask& task, const RulerSources& sources, const RulerOptions& options)
      : RulerGenerator(task, sources, options), length_(limit() - (linear() ? 0 : task.tokens_to_generate)) {
    template_ = fill(options_.model_template, {{"task_template", std::string(kTemplate)}});
    increment_ = length_ / 32;
    if (length_ < kShortest) does_not_fit(kShortest + task.tokens_to_generate);
    n_words_ = length_ / 6;
    RulerSearch search{n_words_, 0, {}, 0};
    // Every size is tried with the same words, here and in draw(): that takes one draw, however many sizes are tried.
    const std::vector<std::string> words = vocabulary(start_);
    for (int64_t total = 0; total < length_; n_words_ += increment_) {
      total = tokens(whole(build(n_words_, words, start_)));
      search.probes.emplace_back(n_words_, total);
    }
    n_words_ -= 2 * increment_;  // the loop went one past the first that was too long
    search.size = n_words_;
    searches_.push_back(std::move(search));
  }

  RulerSample draw(RulerState& state) const override {
    const std::vector<std::string> words = vocabulary(state);
    int64_t total = 0;
    for (int64_t size = n_words_; size > -increment_; size -= increment_) {  // the last one may have no words at all
      RulerSample sample = build(size, words, state);
      total = tokens(whole(sample));
      if (total <= length_) {
        sample.length = total + task_.tokens_to_generate;
        sample.index = state.next++;
        return sample;
      }
    }
    does_not_fit(total + task_.tokens_to_generate);
  }

 private:
  static std::string whole(const RulerSample& sample) { return sample.input + sample.answer_prefix; }

  std::vector<std::string> vocabulary(RulerState& state) const {
    const auto n = static_cast<size_t>(length_ / 50);
    std::set<std::string> distinct;  // sorted, as upstream sorts them
    for (size_t drawn = 0; drawn < n || distinct.size() < n; ++drawn)
      distinct.insert(state.python.choices(kLowerCase, kCodedLength));
    std::vector<std::string> words(distinct.begin(), distinct.end());
    permute(words, state);
    if (!words.empty()) words[0] = "...";
    return words;
  }

  RulerSample build(int64_t n_words, const std::vector<std::string>& words, RulerState& state) const {
    std::vector<std::string> text;
    for (size_t rank = 1; rank <= words.size(); ++rank) {
      const double times =
          static_cast<double>(std::max<int64_t>(0, n_words)) * std::pow(static_cast<double>(rank), -kAlpha) / kZeta;
      text.insert(text.end(), static_cast<size_t>(times), words[rank - 1]);
    }
    permute(text, state);
    RulerSample sample;
    sample.size = n_words;
    for (size_t rank = 1; rank < 4 && rank < words.size(); ++rank) sample.outputs.push_back(words[rank]);
    sample.input = fill(template_, {{"context", join(text, " ")}});
    sample.answer_prefix = kPrefix;
    return sample;
  }

  int64_t length_;  // of the prompt
  int64_t increment_ = 0, n_words_ = 0;
  std::string template_;
};

}  // namespace

std::unique_ptr<RulerGenerator> make_ruler_fwe(const RulerTask& task, const RulerSources& sources,
                                               const RulerOptions& options) {
  return std::make_unique<FweGenerator>(task, sources, options);
}

}  // namespace hayfork::datasets
