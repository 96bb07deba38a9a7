// RULER's protocols: which prompts, which budget, which score. p1 is upstream's main branch, p0 the paper's, p2 the one
// for chat interfaces (NeMo-Skills: no answer prefix, long answers), lm-eval what lm-evaluation-harness makes of p0.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "datasets/ruler/ruler.h"
#include "tasks/ruler.h"
#include "tasks/text_ids.h"

namespace hayfork::tasks {

constexpr std::string_view kRulerChat = "chat";  // the template that is the checkpoint's own

struct RulerForm {
  std::string name;                // p0, p1, p2, lm-eval
  std::string protocol, group;     // "ruler/p1/niah_single_1", "ruler/p1"
  std::string template_key, text;  // the model's template, with "{task_template}" in its place
  Frame frame = {};                // p2 and lm-eval: put around the finished text
  std::string permutation;         // official, per-sample
  std::optional<uint64_t> seed;    // given: else the protocol's own
  int64_t max_new_tokens = 0;
  bool match_part = false;
  double threshold = kRulerThreshold;
  bool prefix_used = true;
  bool official = true;

  bool is_lm_eval() const { return name == "lm-eval"; }
  bool is_chat() const { return template_key == kRulerChat; }
  uint64_t first_seed() const { return seed.value_or(is_lm_eval() ? 0 : 42); }
  // For one length. p2 takes the template's tokens off it.
  datasets::RulerOptions generator_options(int64_t length, const engine::Tokenizer& tokenizer) const;
  // The whole prompt, where it is not the text that was counted; lm-eval's and p2's.
  std::string prompt(const datasets::RulerSample& sample) const;
  bool counts_prompt() const { return prefix_used && !is_lm_eval(); }
  // What upstream writes of a sample.
  std::string row(const datasets::RulerTask& task, const datasets::RulerSample& sample, int64_t length,
                  const engine::Tokenizer& tokenizer) const;
};

const std::vector<OptionDef>& ruler_options();
// Throws: usage for options that contradict each other.
RulerForm read_ruler_form(const datasets::RulerTask& task, const TaskOptions& options, const TextContext& text);

}  // namespace hayfork::tasks
