// qa.py: questions over documents, their own among others of the corpus.
#include <algorithm>
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
    searches_.push_back(
        fit_size({.increment = kIncrement}, options_.max_length, task_.tokens_to_generate, [&](int64_t size) {
          const auto least = static_cast<int64_t>(qa_.questions[0].own.size());
          return tokens(whole(build(0, std::max(size, least), start_)));
        }));
  }

  RulerSample draw(RulerState& state) const override {
    if (state.next >= static_cast<int64_t>(qa_.questions.size()))
      throw Error(ErrorCode::usage, ErrorSubject::data, "ruler_" + task_.name + " has no more questions",
                  {"", "the file has " + std::to_string(qa_.questions.size()), "ask for fewer samples"});
    const auto own = static_cast<int64_t>(qa_.questions[static_cast<size_t>(state.next)].own.size());
    for (int64_t size = searches_[0].size;;) {
      // Upstream never ends when ten documents are too many, or fewer than the question's own are left. Here the own
      // ones are kept, whatever they take, and the sample is marked.
      const bool clamped = size < own;
      RulerSample sample = build(state.next, std::max(size, own), state);
      sample.clamped = clamped;
      sample.length = tokens(whole(sample)) + task_.tokens_to_generate;
      if (sample.length <= options_.max_length || clamped) {
        sample.index = state.next++;
        return sample;
      }
      size = size > kIncrement ? size - kIncrement : own - 1;
    }
  }

 private:
  static std::string whole(const RulerSample& sample) { return sample.input + sample.answer_prefix; }

  std::vector<int64_t> choose(const QaQuestion& q, int64_t n, RulerState& state) const {
    const auto total = static_cast<int64_t>(qa_.documents.size()), own = static_cast<int64_t>(q.own.size()),
               more = static_cast<int64_t>(q.more.size());
    std::vector<int64_t> out;
    if (n >= total) {  // the corpus goes round
      for (int64_t i = 0; i < n; ++i) out.push_back(i % total);
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
    if (options_.per_sample_permutation)
      state.python.shuffle(chosen);
    else
      PythonRandom(options_.seed).shuffle(chosen);
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
