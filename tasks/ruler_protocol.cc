#include "tasks/ruler_protocol.h"

#include <charconv>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/text/tokenizer.h"
#include "tasks/extras.h"
#include "tasks/ruler.h"

namespace hayfork::tasks {
namespace {

using datasets::RulerProtocol;
using datasets::RulerSample;
using nlohmann::json;

constexpr int64_t kLongAnswer = 4096;                           // p2's tokens_to_generate
constexpr uint64_t kLmEvalNumpySeed = 1234, kLmEvalOrder = 42;  // simple_evaluate's default; the generators' constants
constexpr std::string_view kPlace = "{task_template}";

[[noreturn]] void refuse(const std::string& what, const std::string& why, const std::string& next) {
  throw Error(ErrorCode::usage, ErrorSubject::general, what, {"", why, next});
}

double read_threshold(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0) || value > 100)
    refuse("--threshold wants a score", "found \"" + text + "\"", "give a percentage, as 85.6");
  return value <= 1 ? value : value / 100;
}

// What lm-evaluation-harness calls the tasks.
std::string lm_eval_name(const std::string& name) {
  static const std::map<std::string, std::string> kNames = {{"vt", "ruler_vt"},
                                                            {"cwe", "ruler_cwe"},
                                                            {"fwe", "ruler_fwe"},
                                                            {"qa_1", "ruler_qa_squad"},
                                                            {"qa_2", "ruler_qa_hotpot"}};
  const auto it = kNames.find(name);
  return it == kNames.end() ? name : it->second;
}

void pick_template(RulerForm& form, const TaskOptions& options, const TextContext& text) {
  const auto given = extra_text(options, "template");
  form.template_key = given.value_or(text.chat ? std::string(kRulerChat) : "base");
  if (form.is_lm_eval() && given && *given != "base" && !form.is_chat())
    refuse("lm-eval's variant has no templates of RULER's", "--template " + *given,
           "leave it out, or use --chat-template");
  if (form.is_chat()) {
    if (!text.chat) refuse("--template chat is the checkpoint's own template", "", "add --chat-template");
    form.frame = make_frame(text, "", "", "");
    form.text = form.frame.before + std::string(kPlace) + form.frame.after;
    if (form.text.find('{') != form.text.rfind('{') || form.text.find('}') != form.text.rfind('}'))
      throw Error(ErrorCode::unsupported, ErrorSubject::model, "the chat template writes braces",
                  {"", "RULER's prompts are filled in at braces", "use --template with one of RULER's own"});
    return;
  }
  const char* known = ruler_model_template(form.template_key);
  if (known == nullptr) {
    std::vector<std::string> keys = ruler_template_keys();
    keys.emplace_back(kRulerChat);
    extra_choice(options, "template", keys, "base");
  }
  form.text = known;
  const size_t at = form.text.find(kPlace);
  form.frame = {form.text.substr(0, at), form.text.substr(at + kPlace.size()), false};
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \n"), last = text.find_last_not_of(" \n");
  return first == std::string_view::npos ? std::string_view() : text.substr(first, last + 1 - first);
}

}  // namespace

const std::vector<OptionDef>& ruler_options() {
  static const std::vector<OptionDef> kOptions = {
      {"template", "KEY", "RULER's model template; chat: the checkpoint's own", "base, or chat with --chat-template",
       "template"},
      {"permutation", "HOW", "official: the fixed orders of upstream; per-sample: drawn anew", "official",
       "permutation"},
      {"protocol", "P", "p1: upstream's main branch; p0: the paper's; p2: for chats, without the answer's beginning",
       "p1", "protocol"},
      {"variant", "NAME", "official, or lm-eval: as lm-evaluation-harness asks and scores", "official", "variant"},
      {"threshold", "PERCENT", "the mean that counts for the effective length", "85.6", "threshold"},
      {"words", "DIR", "the wonderwords lists", "<data>/ruler", "words"},
      {"english-words", "FILE", "upstream's english_words.json, for ruler_cwe past the lists", "<data>/ruler",
       "english-words"},
      {"essays", "PATH", "folder of essays, or PaulGrahamEssays.json", "<data>/ruler or <data>/niah", "essays"},
      {"punkt", "DIR", "English Punkt parameters", "<data>/ruler/punkt_english", "punkt"},
      {"squad", "FILE", "SQuAD 2.0 dev set", "<data>/ruler", "squad"},
      {"hotpotqa", "FILE", "HotpotQA dev distractor set", "<data>/ruler", "hotpotqa"},
  };
  return kOptions;
}

RulerForm read_ruler_form(const datasets::RulerTask& task, const TaskOptions& options, const TextContext& text) {
  static const std::vector<std::string> kProtocols = {"p0", "p1", "p2"}, kPermutations = {"official", "per-sample"},
                                        kVariants = {"official", "lm-eval"};
  RulerForm form;
  form.name = extra_choice(options, "protocol", kProtocols, "p1");
  if (extra_choice(options, "variant", kVariants, "official") == "lm-eval") {
    if (extra_text(options, "protocol"))
      refuse("--variant lm-eval and --protocol contradict each other", "lm-eval's prompts are a protocol of their own",
             "give one of them");
    form.name = "lm-eval";
  }
  form.permutation = extra_choice(options, "permutation", kPermutations, "official");
  if (form.permutation == "per-sample" && form.name != "p1" && form.name != "p2")
    refuse("--permutation per-sample is p1's and p2's", "found " + form.name, "leave one of them out");
  if (const auto given = extra_text(options, "threshold")) form.threshold = read_threshold(*given);
  pick_template(form, options, text);
  form.group = form.is_lm_eval() ? "lm-eval/ruler/1" : "ruler/" + form.name;
  form.protocol = form.is_lm_eval() ? "lm-eval/" + lm_eval_name(task.name) + "/1.0" : form.group + "/" + task.name;
  form.seed = options.seed;
  form.prefix_used = form.name != "p2";
  form.max_new_tokens = form.prefix_used ? task.tokens_to_generate : kLongAnswer;
  form.match_part = task.match_part && !form.is_lm_eval();  // there the part metric is the share that was found
  form.official = !options.seed && form.permutation == "official" && !form.is_lm_eval() &&
                  form.template_key != "qwen-chatml" && (!form.is_chat() || form.name == "p2");
  return form;
}

datasets::RulerOptions RulerForm::generator_options(int64_t length, const engine::Tokenizer& tokenizer) const {
  datasets::RulerOptions out;
  out.max_length = length;
  out.seed = first_seed();
  out.per_sample_permutation = permutation == "per-sample";
  out.positions = false;
  if (is_lm_eval()) {
    out.protocol = RulerProtocol::lm_eval;
    out.numpy_seed = seed.value_or(kLmEvalNumpySeed);
    out.order_seed = kLmEvalOrder;
    return out;
  }
  if (name == "p0") out.protocol = RulerProtocol::p0;
  if (prefix_used)
    out.model_template = text;
  else  // the placeholder stands in the text that upstream counts
    out.template_tokens =
        static_cast<int64_t>(tokenizer.encode(text, {.add_special = false, .parse_special = true}).size());
  return out;
}

std::string RulerForm::prompt(const RulerSample& sample) const {
  if (!prefix_used) return frame.before + sample.input + frame.after;
  if (!is_chat()) return sample.input + sample.answer_prefix;
  // The prefix begins the assistant's turn.
  return frame.before + sample.input + frame.after + std::string(trimmed(sample.answer_prefix));
}

std::string RulerForm::row(const datasets::RulerTask& task, const RulerSample& s, int64_t length,
                           const engine::Tokenizer& tokenizer) const {
  nlohmann::ordered_json row;
  row["index"] = s.index;
  row["input"] = s.input;
  if (is_lm_eval()) {
    if (!s.example.empty()) row["input_example"] = s.example;
    row["outputs"] = s.outputs;
    row["length"] = s.length;
    row["max_length"] = length;
    row["gen_prefix"] = trimmed(s.answer_prefix);
  } else if (name == "p0") {
    row["input"] = s.input + s.answer_prefix;
    row["outputs"] = s.outputs;
    row["length"] = s.length;
  } else {
    row["outputs"] = s.outputs;
    row["length"] = s.length;
    row["length_w_model_temp"] = s.length + generator_options(length, tokenizer).template_tokens;
    row["answer_prefix"] = s.answer_prefix;
    if (task.generator == "niah") {
      const std::string_view before =
          std::string_view(s.input).substr(0, (s.input + s.answer_prefix).find(s.outputs[0]));
      row["token_position_answer"] = tokenizer.encode(before, {.add_special = false, .parse_special = true}).size();
    }
  }
  return row.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace hayfork::tasks
