// RULER's prompt generators (NVIDIA/RULER at c3f5e3b4, scripts/data/synthetic): the same bytes as upstream's for the
// same seed, sources and tokenizer. A generator first fits its size to the length (every probe is a random sample, so
// the search is part of the random sequence), then draws samples one after another from a state that can be copied:
// sample i needs the state that sample i−1 left, and nothing else.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "datasets/ruler/punkt.h"
#include "datasets/ruler/python_random.h"
#include "datasets/ruler/sources.h"

namespace hayfork::datasets {

// Tokens of a text, without BOS or other special tokens (upstream counts so).
using RulerTokenCount = std::function<int64_t(std::string_view)>;
// Sentences of a text, white space between them dropped.
using RulerSplitter = std::function<std::vector<std::string>(const std::string&)>;

struct RulerTask {
  std::string name;       // "niah_single_1"
  std::string generator;  // niah, vt, cwe, fwe, qa
  int64_t tokens_to_generate;
  bool match_part = false;  // scored by string_match_part instead of _all
  // niah
  std::string haystack = {}, key_type = {}, value_type = {};  // noise, essay, needle; words, numbers, uuids
  int64_t n_keys = 1, n_values = 1, n_queries = 1;
  std::string dataset = {};  // qa: squad, hotpotqa
};
const std::vector<RulerTask>& ruler_tasks();  // the thirteen

// Borrowed by the generator; what its task does not need may be empty.
struct RulerSources {
  const WordPairs* pairs = nullptr;
  const std::vector<std::string>* words = nullptr;          // WordLists::all()
  const std::vector<std::string>* english_words = nullptr;  // for cwe past the end of `words`
  const std::vector<std::string>* essays = nullptr;         // essay_words() of the whole text
  const QaSet* qa = nullptr;
};

// Whose generators are imitated. They differ in how sizes are searched, in a few words, and in what is counted.
enum class RulerProtocol {
  p0,       // the paper's: NVIDIA/RULER at 4f6507e
  p1,       // its main branch at c3f5e3b4
  lm_eval,  // lm-evaluation-harness at 4e7e0d47: p0's, one task loaded alone
};

struct RulerOptions {
  RulerProtocol protocol = RulerProtocol::p1;
  int64_t max_length = 4096;
  int64_t template_tokens = 0;  // taken off the length, for a template that is put around the finished prompt
  uint64_t seed = 42;
  std::optional<uint64_t> numpy_seed = {}, order_seed = {};  // of numbers, of the fixed permutations; else `seed`
  std::string model_template = "{task_template}";
  bool per_sample_permutation = false;  // else the fixed ones of upstream
  RulerTokenCount count;
  RulerSplitter split;    // essays
  bool positions = true;  // fill token_position_answer, which costs another count
};

struct RulerState {
  explicit RulerState(const RulerOptions& options)
      : python(options.seed),
        orders(options.order_seed.value_or(options.seed)),
        numpy(static_cast<uint32_t>(options.numpy_seed.value_or(options.seed))) {}
  PythonRandom python, orders;  // `orders` runs on in lm-eval's cwe only
  NumpyRandom numpy;
  int64_t next = 0;             // number of the next sample (qa: of its question)
  int64_t corpus_shuffles = 0;  // p0 shuffles qa's documents in place whenever it takes them all
};

struct RulerSample {
  std::string input;          // the prompt without the answer prefix
  std::string answer_prefix;  // with the white space before it
  std::string example = {};   // lm-eval's cwe: counted and stored, never asked
  std::vector<std::string> outputs;
  int64_t length = 0;                  // tokens of input + prefix, plus the budget
  int64_t size = 0;                    // what was drawn: lines, words, documents
  int64_t index = 0;                   // upstream's field: niah's is the position of the answer in code points
  int64_t token_position_answer = -1;  // niah alone
  bool clamped = false;                // qa: the question's own documents alone, where upstream never ends; they may
                                       // be longer than the length
};

struct RulerSearch {
  int64_t lower = 0, upper = 0;
  std::vector<std::pair<int64_t, int64_t>> probes;  // size, tokens + budget
  int64_t size = 0;
};

class RulerGenerator {
 public:
  virtual ~RulerGenerator() = default;
  // The next sample; `state` moves on. Throws: Error(usage) when no size fits the length.
  virtual RulerSample draw(RulerState& state) const = 0;
  // The state after the search, with which sample 0 is drawn.
  const RulerState& start() const { return start_; }
  const std::vector<RulerSearch>& searches() const { return searches_; }

 protected:
  RulerGenerator(const RulerTask& task, const RulerSources& sources, const RulerOptions& options);
  int64_t tokens(std::string_view text) const { return options_.count(text); }
  bool is(RulerProtocol protocol) const { return options_.protocol == protocol; }
  bool linear() const { return options_.protocol != RulerProtocol::p1; }  // sizes are searched one step at a time
  int64_t limit() const { return options_.max_length - options_.template_tokens; }
  // A list in the order of the protocol: the same for every sample unless permutations are drawn.
  template <typename T>
  void permute(std::vector<T>& list, RulerState& state) const {
    if (options_.per_sample_permutation)
      state.python.shuffle(list);
    else
      PythonRandom(options_.order_seed.value_or(options_.seed)).shuffle(list);
  }
  // Upstream draws again and again at its smallest size until a sample fits; here it must within so many draws.
  static constexpr int64_t kMostTries = 100;
  [[noreturn]] void does_not_fit(int64_t smallest) const;

  RulerTask task_;
  RulerSources sources_;
  RulerOptions options_;
  RulerState start_;
  std::vector<RulerSearch> searches_;
};

// Throws: usage (a source is missing, the length is too small), corrupt.
std::unique_ptr<RulerGenerator> make_ruler_generator(const RulerTask& task, const RulerSources& sources,
                                                     const RulerOptions& options);

}  // namespace hayfork::datasets
