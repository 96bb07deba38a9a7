#include "tasks/custom.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "datasets/yaml_config.h"
#include "engine/text/text_template.h"
#include "tasks/choice.h"
#include "tasks/generate.h"
#include "tasks/python_literal.h"

namespace hayfork::tasks {
namespace {

namespace fs = std::filesystem;
using engine::TextTemplate;
using nlohmann::json;
using nlohmann::ordered_json;

const std::set<std::string> kKnown = {
    "task", "dataset_path", "dataset_name", "dataset_kwargs", "training_split", "validation_split", "test_split",
    "fewshot_split", "fewshot_config", "output_type", "doc_to_text", "doc_to_target", "doc_to_choice", "num_fewshot",
    "metric_list", "generation_kwargs", "description", "target_delimiter", "fewshot_delimiter", "metadata",
    // Known and without effect on a score.
    "tag", "group", "task_alias", "should_decontaminate", "doc_to_decontamination_query"};

class File {
 public:
  explicit File(const std::string& path) : path_(path), root_(datasets::load_yaml(path)) {
    if (!root_.is_object()) fail("", "want a mapping of keys");
    for (const auto& [key, value] : root_.items())
      if (!kKnown.contains(key)) unsupported(key);
  }

  [[noreturn]] void fail(const std::string& key, const std::string& why) const {
    throw Error(ErrorCode::usage, ErrorSubject::general,
                key.empty() ? "the task file cannot be used" : fmt::format("key \"{}\" of the task file", key),
                {.where = path_, .why = why});
  }
  [[noreturn]] void unsupported(const std::string& key) const {
    const std::vector<std::string> names(kKnown.begin(), kKnown.end());
    const std::vector<std::string> near = nearest_names(key, names);
    throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("key \"{}\" is not supported", key),
                {.where = path_,
                 .why = "a key without effect would change the score silently",
                 .next = near.empty() ? "take it out" : "did you mean " + near.front() + "?"});
  }

  bool has(const char* key) const { return root_.contains(key) && !root_[key].is_null(); }
  const ordered_json& at(const char* key) const {
    if (!has(key)) fail(key, "it is missing");
    return root_[key];
  }
  std::string text(const char* key, const char* otherwise) const {
    if (!has(key)) return otherwise;
    if (!root_[key].is_string()) fail(key, "want a text");
    return root_[key].get<std::string>();
  }
  std::string needed(const char* key) const {
    if (!at(key).is_string()) fail(key, "want a text");
    return at(key).get<std::string>();
  }
  int64_t count(const ordered_json& value, const char* key, int64_t low) const {
    if (!value.is_number_integer() || value.get<int64_t>() < low || value.get<int64_t>() > 1'000'000)
      fail(key, fmt::format("want a whole number from {} to 1000000", low));
    return value.get<int64_t>();
  }

  const std::string path_;
  const ordered_json root_;
};

// ---- Fields from templates -----------------------------------------------------------------------------------------

bool is_digits(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// A template that is the name of a column gives that column as it is; any other is rendered.
class Source {
 public:
  Source(const File& file, const char* key) : name_(fmt::format("{}: {}", file.path_, key)) {
    const ordered_json& value = file.at(key);
    if (value.is_string()) {
      text_ = value.get<std::string>();
      template_.emplace(TextTemplate::parse(text_, name_));
    } else if (value.is_number_integer() || value.is_array()) {
      literal_ = value;
    } else {
      file.fail(key, "want a text, a whole number or a list of texts");
    }
  }

  ordered_json of(const Fields& row) const {
    if (!template_) return literal_;
    if (row.has(text_.c_str())) return row.at(text_.c_str());
    try {
      return template_->render(row.row());
    } catch (const Error& error) {
      if (error.subject() != ErrorSubject::data) throw;
      row.fail(fmt::format("{}: {}", name_, error.summary()));
    }
  }
  bool is_column(const Fields& row) const { return template_ && row.has(text_.c_str()); }

 private:
  std::string name_, text_;
  std::optional<TextTemplate> template_;
  ordered_json literal_;
};

std::string text_of(const ordered_json& value, const char* key, const Fields& row) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return std::to_string(value.get<int64_t>());
  row.fail(key, "a text", value);
}

std::vector<std::string> texts_of(ordered_json value, const char* key, const Fields& row) {
  if (value.is_string()) {
    const auto literal = python_literal(value.get_ref<const std::string&>());
    if (!literal || !literal->is_array()) row.fail(key, "a list", value);
    value = *literal;
  }
  if (!value.is_array() || value.empty()) row.fail(key, "a list that is not empty", value);
  std::vector<std::string> out;
  for (const ordered_json& item : value) out.push_back(text_of(item, key, row));
  return out;
}

// doc_to_target of a question with options: an index, or the text of one.
int64_t gold_of(const ordered_json& target, const std::vector<std::string>& choices, const Fields& row) {
  const auto n = static_cast<int64_t>(choices.size());
  int64_t gold = -1;
  if (target.is_number_integer()) {
    gold = target.get<int64_t>();
  } else if (target.is_string() && is_digits(target.get<std::string>()) && target.get<std::string>().size() < 10) {
    gold = std::stoll(target.get<std::string>());
  } else if (target.is_string()) {
    gold = std::find(choices.begin(), choices.end(), target.get<std::string>()) - choices.begin();
  }
  if (gold < 0 || gold >= n)
    row.fail("doc_to_target", fmt::format("an index from 0 to {} or one of the choices", n - 1), target);
  return gold;
}

std::function<Document(const Fields&)> choices_document(const File& file) {
  return [text = Source(file, "doc_to_text"), target = Source(file, "doc_to_target"),
          choice = Source(file, "doc_to_choice")](const Fields& row) {
    Document out;
    out.choices = texts_of(choice.of(row), "doc_to_choice", row);
    const ordered_json asked = text.of(row);
    if (asked.is_string() && is_digits(asked.get<std::string>()) && !text.is_column(row))
      row.fail("doc_to_text", "a text that is more than digits, which upstream takes for an index", asked);
    out.text = text_of(asked, "doc_to_text", row);
    const ordered_json right = target.of(row);
    set_gold(out, gold_of(right, out.choices, row));
    const bool by_index = right.is_number_integer() || (right.is_string() && is_digits(right.get<std::string>()));
    if (!by_index) out.target = out.answer;
    return out;
  };
}

std::function<Document(const Fields&)> written_document(const File& file) {
  return [text = Source(file, "doc_to_text"), target = Source(file, "doc_to_target")](const Fields& row) {
    Document out;
    out.text = text_of(text.of(row), "doc_to_text", row);
    const ordered_json right = target.of(row);
    if (right.is_array())
      out.targets = texts_of(right, "doc_to_target", row);
    else
      out.targets = {text_of(right, "doc_to_target", row)};
    out.target = out.answer = out.targets.front();
    out.choices = {out.targets.front()};
    out.gold = 0;
    return out;
  };
}

// ---- Parts of the file ---------------------------------------------------------------------------------------------

void read_data(const File& file, DocumentForm& form) {
  const std::string path = file.needed("dataset_path");
  form.data.sets = {file.has("dataset_name") ? path + "_" + file.needed("dataset_name") : path};
  if (!file.has("dataset_kwargs")) return;
  const ordered_json& kwargs = file.at("dataset_kwargs");
  if (!kwargs.is_object()) file.fail("dataset_kwargs", "want a mapping");
  for (const auto& [key, value] : kwargs.items())
    if (key != "data_files") file.unsupported("dataset_kwargs." + key);
  if (path != "json" && path != "csv") file.fail("dataset_kwargs", "data_files needs dataset_path json or csv");
  const ordered_json files = kwargs.value("data_files", ordered_json());
  if (!files.is_object()) file.fail("dataset_kwargs.data_files", "want a mapping of splits to files");
  for (const auto& [split, name] : files.items()) {
    if (!name.is_string()) file.fail("dataset_kwargs.data_files", "want one file a split");
    form.data.files[split] = (fs::path(file.path_).parent_path() / name.get<std::string>()).string();
  }
}

void read_splits(const File& file, DocumentForm& form) {
  form.train_split = file.text("training_split", "");
  form.validation_split = file.text("validation_split", "");
  form.test_split = file.text("test_split", "");
  form.fewshot_split = file.text("fewshot_split", "");
  if (form.eval_split().empty()) file.fail("test_split", "neither test_split nor validation_split is there");
  if (!file.has("fewshot_config")) return;
  const ordered_json& config = file.at("fewshot_config");
  if (!config.is_object()) file.fail("fewshot_config", "want a mapping");
  for (const auto& [key, value] : config.items()) {
    if (key != "sampler") file.unsupported("fewshot_config." + key);
    if (value != "first_n" && value != "default") file.fail("fewshot_config.sampler", "want first_n or default");
    form.first_n = value == "first_n";
  }
}

void read_metrics(const File& file, DocumentForm& form) {
  const bool written = form.output == Output::text, one = form.output == Output::continuation;
  const std::vector<std::string> allowed =
      written ? std::vector<std::string>{"exact_match", "contains", "f1"}
      : one
          ? std::vector<std::string>{"acc", "perplexity"}
          : std::vector<std::string>{"acc", "acc_norm", "acc_bytes", "acc_tokens", "acc_mutual_info", "bits_per_byte"};
  form.metrics = written ? std::vector<std::string>{"exact_match"}
                 : one   ? std::vector<std::string>{"acc", "perplexity"}
                         : std::vector<std::string>{"acc", "acc_norm"};
  if (file.has("metric_list")) {
    const ordered_json& list = file.at("metric_list");
    if (!list.is_array() || list.empty()) file.fail("metric_list", "want a list that is not empty");
    form.metrics.clear();
    for (const ordered_json& entry : list) {
      if (!entry.is_object() || !entry.contains("metric") || !entry["metric"].is_string())
        file.fail("metric_list", "want entries with \"metric\"");
      const std::string name = entry["metric"].get<std::string>();
      if (std::find(allowed.begin(), allowed.end(), name) == allowed.end()) {
        std::string known;
        for (const std::string& metric : allowed) known += (known.empty() ? "" : ", ") + metric;
        file.fail("metric_list", fmt::format("metric \"{}\" is not supported here; known: {}", name, known));
      }
      for (const auto& [key, value] : entry.items()) {
        if (key == "metric") continue;
        if (key == "aggregation") {
          if (value != (name == "perplexity" ? "perplexity" : "mean"))
            file.fail("metric_list.aggregation", "only mean is supported (perplexity for perplexity)");
        } else if (key == "higher_is_better") {
          if (value != (name != "perplexity" && name != "bits_per_byte"))
            file.fail("metric_list.higher_is_better", fmt::format("it is not so for {}", name));
        } else if (written && (key == "ignore_case" || key == "ignore_punctuation") && value.is_boolean()) {
          (key == "ignore_case" ? form.ignore_case : form.ignore_punctuation) = value.get<bool>();
        } else {
          file.unsupported("metric_list." + key);
        }
      }
      form.metrics.push_back(name);
    }
  }
  form.primary = form.metrics.front() == "perplexity" ? "acc" : form.metrics.front();
}

void read_generation(const File& file, DocumentForm& form) {
  form.stops = {form.fewshot_delimiter};
  form.max_new_tokens = 256;  // upstream's default
  if (!file.has("generation_kwargs")) return;
  const ordered_json& kwargs = file.at("generation_kwargs");
  if (!kwargs.is_object()) file.fail("generation_kwargs", "want a mapping");
  for (const auto& [key, value] : kwargs.items()) {
    if (key == "until") {
      form.stops.clear();
      if (value.is_string()) form.stops.push_back(value.get<std::string>());
      for (const ordered_json& stop : value.is_array() ? value : ordered_json::array()) {
        if (!stop.is_string()) file.fail("generation_kwargs.until", "want texts");
        form.stops.push_back(stop.get<std::string>());
      }
      if (form.stops.empty() && !value.is_array())
        file.fail("generation_kwargs.until", "want a text or a list of texts");
    } else if (key == "max_gen_toks") {
      form.max_new_tokens = file.count(value, "generation_kwargs.max_gen_toks", 1);
    } else if (key == "do_sample") {
      if (value != false)
        file.fail("generation_kwargs.do_sample", "answers are written greedily: only false is supported");
    } else if (key == "temperature") {
      if (!value.is_number() || value.get<double>() != 0)
        file.fail("generation_kwargs.temperature", "answers are written greedily: only 0 is supported");
    } else {
      file.unsupported("generation_kwargs." + key);
    }
  }
}

std::string version_of(const File& file) {
  if (!file.has("metadata")) return "1";
  const ordered_json& metadata = file.at("metadata");
  const ordered_json version = metadata.is_object() ? metadata.value("version", ordered_json(1)) : ordered_json(1);
  return version.is_string() ? version.get<std::string>() : version.dump();
}

std::unique_ptr<Task> make_custom(const std::string& path, const TaskOptions& options, const TextContext& text) {
  const DocumentForm form = load_task_file(path);
  if (form.output == Output::text) return make_generate_task(form, options, text);
  TaskOptions own = options;
  if (std::find(form.metrics.begin(), form.metrics.end(), "acc_mutual_info") != form.metrics.end())
    own.extra.try_emplace("pmi", "on");
  return make_choice_task(form, own, text);
}

}  // namespace

bool is_task_file(std::string_view name) {
  return name.ends_with(".yaml") || name.ends_with(".yml");
}

DocumentForm load_task_file(const std::string& path) {
  const File file(path);
  DocumentForm form;
  form.name = file.needed("task");
  form.version = version_of(file);
  form.protocol = "custom/" + form.name + "/" + form.version;
  form.family = "custom";
  const std::string output = file.text("output_type", "generate_until");
  if (output != "multiple_choice" && output != "loglikelihood" && output != "generate_until")
    file.fail("output_type",
              fmt::format("\"{}\" is not supported; known: multiple_choice, loglikelihood, generate_until", output));
  form.output = output == "multiple_choice" ? Output::choices
                : output == "loglikelihood" ? Output::continuation
                                            : Output::text;
  if (form.output != Output::choices && file.has("doc_to_choice"))
    file.fail("doc_to_choice", "it belongs to multiple_choice");
  if (form.output != Output::text && file.has("generation_kwargs"))
    file.fail("generation_kwargs", "it belongs to generate_until");
  read_data(file, form);
  read_splits(file, form);
  form.description = file.text("description", "");
  if (!form.description.empty())
    form.describe = [source = Source(file, "description")](const Fields& row) {
      return text_of(source.of(row), "description", row);
    };
  form.delimiter = file.text("target_delimiter", " ");
  form.fewshot_delimiter = file.text("fewshot_delimiter", "\n\n");
  if (file.has("num_fewshot")) form.num_fewshot = file.count(file.at("num_fewshot"), "num_fewshot", 0);
  read_metrics(file, form);
  if (form.output == Output::text) read_generation(file, form);
  form.document = form.output == Output::choices ? choices_document(file) : written_document(file);
  form.config_json = canonical_json(json(file.root_));
  return form;
}

const TaskEntry& task_file_entry(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, TaskEntry> entries;
  const std::lock_guard lock(mutex);
  const auto found = entries.find(path);
  if (found != entries.end()) return found->second;
  const DocumentForm form = load_task_file(path);
  TaskEntry entry;
  entry.name = path;
  entry.family = "custom";
  entry.kind = form.output == Output::text ? "generate" : "choice";
  entry.summary = "from a task file";
  entry.options = choice_options();
  entry.make = make_custom;
  return entries.emplace(path, std::move(entry)).first->second;
}

}  // namespace hayfork::tasks
