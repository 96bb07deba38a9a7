// qa.py: questions over documents, their own among others of the corpus.
#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "datasets/ruler/fit.h"
#include "datasets/ruler/generators.h"

namespace hayfork::datasets {
namespace {

constexpr std::string_view kTemplate =
    "Answer the question based on the given documents. Only give me the answer and do not output any other "
    "words.\n\nThe "
    "following are given documents.\n\n{context}\n\nAnswer the question based on the given documents. Only give me the "
    "answer and do not output any other words.\n\nQuestion: {query}";
constexpr std::string_view kPrefix = " Answer:";
constexpr int64_t kIncrement = 10;

class QaGenerator : public RulerGenerator {
 public:
  QaGenerator(const RulerTask& task, const RulerSources& sources, const RulerOptions& options)
      : RulerGenerator(task, sources, options), qa_(*sources.qa) {
    if (qa_.questions.empty())
      throw Error(ErrorCode::corrupt, ErrorSubject::data, "the question file has no answerable question",
                  {task.dataset, "", ""});
    template_ = fill(options_.model_template, {{"task_template", std::string(kTemplate)}});
    const int64_t bare =
        tokens(fill(template_, {{"context", ""}, {"query", qa_.questions[0].question}}) + std::string(kPrefix)) +
        task_.tokens_to_generate;
    if (bare > limit()) does_not_fit(bare);
    const auto least = static_cast<int64_t>(qa_.questions[0].own.size());
    if (linear()) {
      const auto most = static_cast<int64_t>(qa_.documents.size());
      searches_.push_back(fit_linear({kIncrement, most}, limit(), task_.tokens_to_generate, [&](int64_t size) {
        const RulerSample sample = build(0, std::max(size, least), start_);
        return tokens(counted(sample) + " " + python_list(sample.outputs));
      }));
    } else {
      searches_.push_back(fit_size({.increment = kIncrement}, limit(), task_.tokens_to_generate, [&](int64_t size) {
        return tokens(counted(build(0, std::max(size, least), start_)));
      }));
    }
  }

  RulerSample draw(RulerState& state) const override {
    if (state.next >= static_cast<int64_t>(qa_.questions.size()))
      throw Error(ErrorCode::usage, ErrorSubject::data, "ruler_" + task_.name + " has no more questions",
                  {"", "the file has " + std::to_string(qa_.questions.size()), "ask for fewer samples"});
    const auto own = static_cast<int64_t>(qa_.questions[static_cast<size_t>(state.next)].own.size());
    int64_t tries = 0;
    for (int64_t size = searches_[0].size;;) {
      // Upstream never ends when ten documents are too many, or fewer than the question's own are left. Here the own
      // ones are kept, whatever they take, and the sample is marked.
      const bool clamped = size < own;
      RulerSample sample = build(state.next, std::max(size, own), state);
      sample.clamped = clamped;
      sample.length = tokens(counted(sample)) + task_.tokens_to_generate;
      if (sample.length <= limit() || clamped) {
        sample.index = state.next++;
        return sample;
      }
      const bool draws = size > own && size < static_cast<int64_t>(qa_.documents.size());
      if (size > kIncrement)
        size -= kIncrement;
      else if (!draws || ++tries == kMostTries)
        size = own - 1;
    }
  }

 private:
  // lm-eval fits the text in front of the prefix.
  std::string counted(const RulerSample& sample) const {
    return is(RulerProtocol::lm_eval) ? sample.input : sample.input + sample.answer_prefix;
  }

  std::vector<int64_t> choose(const QaQuestion& q, int64_t n, RulerState& state) const {
    const auto total = static_cast<int64_t>(qa_.documents.size()), own = static_cast<int64_t>(q.own.size()),
               more = static_cast<int64_t>(q.more.size());
    std::vector<int64_t> out;
    if (n >= total) {  // the corpus goes round; p0 takes it once
      for (int64_t i = 0; i < (linear() ? total : n); ++i) out.push_back(i % total);
      return out;
    }
    out = q.own;
    if (n - own <= more) {
      for (const size_t i : state.python.sample(q.more.size(), static_cast<size_t>(n - own))) out.push_back(q.more[i]);
      return out;
    }
    out.insert(out.end(), q.more.begin(), q.more.end());
    const std::set<int64_t> used(out.begin(), out.end());
    std::vector<int64_t> rest;
    for (int64_t i = 0; i < total; ++i)
      if (!used.contains(i)) rest.push_back(i);
    const auto missing = std::min(rest.size(), static_cast<size_t>(std::max<int64_t>(0, n - own - more)));
    for (const size_t i : state.python.sample(rest.size(), missing)) out.push_back(rest[i]);
    return out;
  }

  RulerSample build(int64_t question, int64_t n, RulerState& state) const {
    const QaQuestion& q = qa_.questions[static_cast<size_t>(question)];
    std::vector<int64_t> chosen = choose(q, n, state);
    if (linear() && n >= static_cast<int64_t>(qa_.documents.size())) ++state.corpus_shuffles;
    if (linear() && state.corpus_shuffles > 0) {
      // The corpus itself was shuffled, this time included: a document's number names what lies there now.
      const std::vector<int64_t> lies = shuffled_corpus(state.corpus_shuffles);
      for (int64_t& document : chosen) document = lies[static_cast<size_t>(document)];
    }
    if (!linear() || n < static_cast<int64_t>(qa_.documents.size())) permute(chosen, state);
    std::vector<std::string> parts;
    for (size_t i = 0; i < chosen.size(); ++i)
      parts.push_back("Document " + std::to_string(i + 1) + ":\n" + qa_.documents[static_cast<size_t>(chosen[i])]);
    RulerSample sample;
    sample.size = n;
    sample.outputs = q.answers;
    sample.input = fill(template_, {{"context", join(parts, "\n\n")}, {"query", q.question}});
    sample.answer_prefix = kPrefix;
    return sample;
  }

  // What lies where after the fixed permutation was applied so often.
  std::vector<int64_t> shuffled_corpus(int64_t times) const {
    std::vector<int64_t> step(qa_.documents.size());
    std::iota(step.begin(), step.end(), 0);
    PythonRandom(options_.order_seed.value_or(options_.seed)).shuffle(step);
    std::vector<int64_t> out(step.size());
    std::iota(out.begin(), out.end(), 0);
    for (; times > 0; times /= 2) {  // by squaring
      if (times % 2 == 1)
        for (int64_t& place : out) place = step[static_cast<size_t>(place)];
      std::vector<int64_t> twice(step.size());
      for (size_t i = 0; i < step.size(); ++i) twice[i] = step[static_cast<size_t>(step[i])];
      step = std::move(twice);
    }
    return out;
  }

  const QaSet& qa_;
  std::string template_;
};

}  // namespace

std::unique_ptr<RulerGenerator> make_ruler_qa(const RulerTask& task, const RulerSources& sources,
                                              const RulerOptions& options) {
  HAY_CHECK(sources.qa != nullptr);
  return std::make_unique<QaGenerator>(task, sources, options);
}

}  // namespace hayfork::datasets
