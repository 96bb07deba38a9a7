#include "cli/import/lm_eval_sample.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "base/digest.h"
#include "base/json.h"
#include "base/utf8.h"
#include "cli/import/importer.h"

namespace hayfork::cli::lm_eval {

const Json* find(const Json& object, const std::string& key) {
  if (!object.is_object()) return nullptr;
  const auto at = object.find(key);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

bool is_special_float(const Json& value) {
  return value.is_object() && value.size() == 1 && value.contains("__float__");
}

std::optional<double> number(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const std::string& text = value.get_ref<const std::string&>();
  if (text == "True" || text == "False") return text == "True" ? 1 : 0;
  double out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(out)) return std::nullopt;
  return out;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<CorpusShare> corpus_share(const std::string& metric, const Json& value) {
  const bool words = metric == "word_perplexity", bits = metric == "bits_per_byte";
  if (!words && !bits && metric != "byte_perplexity") return std::nullopt;
  if (!value.is_array() || value.size() != 2) return std::nullopt;
  const auto count = number(value[1]);
  if (!count || *count <= 0) return std::nullopt;
  CorpusShare out{is_special_float(value[0]) ? NAN : number(value[0]).value_or(NAN), *count, words ? "words" : "bytes"};
  const double loss = -out.loglikelihood / out.count;
  out.value = bits ? loss / std::numbers::ln2 : std::exp(loss);
  return out;
}

runs::OptText text_at(const Json& object, const std::string& key) {
  const Json* value = find(object, key);
  return value == nullptr || (value->is_string() && value->get_ref<const std::string&>().empty())
             ? runs::OptText()
             : runs::OptText(text_of(*value));
}

namespace {

constexpr size_t kMaxStoredDocument = 64 << 10;

// {"gen_args_0": {"arg_0": context, "arg_1": continuation or settings}, …}, or the older list of lists.
std::vector<const Json*> requests_of(const Json& line) {
  std::vector<const Json*> out;
  const Json* arguments = find(line, "arguments");
  if (arguments == nullptr) return out;
  if (arguments->is_array()) {
    for (const Json& one : *arguments) out.push_back(&one);
  } else if (arguments->is_object()) {
    for (size_t i = 0; i < arguments->size(); ++i) {
      const Json* one = find(*arguments, "gen_args_" + std::to_string(i));
      if (one == nullptr) break;
      out.push_back(one);
    }
  }
  return out;
}

const Json* argument(const Json& request, size_t i) {
  if (request.is_array()) return i < request.size() ? &request[i] : nullptr;
  return find(request, "arg_" + std::to_string(i));
}

void read_arguments(const Json& line, runs::SampleRow& row) {
  const auto requests = requests_of(line);
  if (requests.empty()) return;
  if (const Json* context = argument(*requests.front(), 0); context != nullptr && context->is_string())
    row.prompt_text = runs::StoredText{context->get<std::string>()};
}

void read_choices(const Json& line, const Json& filtered, const std::string& delimiter, runs::SampleRow& row) {
  const auto requests = requests_of(line);
  const auto gold = row.target ? number(Json(*row.target)) : std::nullopt;
  size_t best = 0;
  for (size_t i = 0; i < filtered.size() && i < 1000; ++i) {
    const Json& one = filtered[i];
    if (!one.is_array() || one.size() < 2) return;
    runs::SampleChoiceRow choice;
    choice.choice = static_cast<int64_t>(i);
    choice.logprob = number(one[0]);
    if (const auto greedy = number(one[1])) choice.greedy = *greedy != 0;
    if (i < requests.size()) {
      if (const Json* text = argument(*requests[i], 1); text != nullptr && text->is_string()) {
        std::string_view option = text->get_ref<const std::string&>();
        if (option.starts_with(delimiter)) option.remove_prefix(delimiter.size());
        if (!option.empty()) {  // an export without the texts of options: their sizes are unknown, not 0
          choice.n_bytes = static_cast<int64_t>(option.size());
          choice.n_chars = static_cast<int64_t>(count_code_points(option));
        }
      }
    }
    choice.gold = gold && *gold == static_cast<double>(i);
    row.choices.push_back(choice);
    if (choice.logprob.value_or(-INFINITY) > row.choices[best].logprob.value_or(-INFINITY)) best = i;
  }
  if (!row.choices.empty()) row.answer = std::to_string(best);
}

void read_answers(const Json& line, const std::string& kind, const std::string& delimiter, runs::SampleRow& row) {
  const Json* answers = find(line, "resps");
  const Json* filtered = find(line, "filtered_resps");
  if (kind == "choice") {
    if (filtered != nullptr && filtered->is_array()) read_choices(line, *filtered, delimiter, row);
    return;
  }
  if (kind != "generate") return;
  const Json* first = answers;
  while (first != nullptr && first->is_array()) first = first->empty() ? nullptr : &first->front();
  if (first != nullptr) row.response = runs::StoredText{text_of(*first)};
  if (filtered != nullptr && filtered->is_array() && !filtered->empty()) row.answer = text_of(filtered->front());
}

}  // namespace

runs::SampleRow sample_of(const Json& line, const std::string& doc_id, const std::string& where,
                          const std::string& kind, const std::string& delimiter) {
  runs::SampleRow row;
  row.doc_id = doc_id;
  const Json* document = find(line, "doc");
  const std::string document_text = document == nullptr ? "" : text_of(*document);
  row.doc_sha256 = text_at(line, "doc_hash").value_or(document ? sha256_hex(document_text) : "");
  if (row.doc_sha256.empty()) refuse_import(where, "there is neither \"doc_hash\" nor \"doc\"");
  if (document != nullptr && document_text.size() <= kMaxStoredDocument)
    row.recipe_json = canonical_json(nlohmann::json{{"doc", *document}});
  row.target = text_at(line, "target");
  read_arguments(line, row);
  row.prompt_sha256 = text_at(line, "prompt_hash").value_or(row.prompt_text ? sha256_hex(row.prompt_text->text) : "");
  read_answers(line, kind, delimiter, row);
  return row;
}

}  // namespace hayfork::cli::lm_eval
