#include "cli/policy.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/file_map.h"
#include "base/utf8.h"
#include "cli/compare_flags.h"
#include "datasets/yaml_config.h"
#include "tasks/tasks.h"

namespace hayfork::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr int64_t kMaxRules = 10'000;

// One mapping of the file, with its place for messages; every key must be asked for.
class Mapping {
 public:
  Mapping(const json& value, std::string where) : value_(value), where_(std::move(where)) {
    if (!value.is_object()) refuse("want keys and values", "");
  }

  [[noreturn]] void refuse(const std::string& why, const std::string& next) const {
    throw Error(ErrorCode::usage, ErrorSubject::general, "the gate's policy cannot be read",
                {.where = where_, .why = why, .next = next});
  }
  const json* find(const std::string& key) {
    known_.push_back(key);
    const auto at = value_.find(key);
    return at == value_.end() || at->is_null() ? nullptr : &*at;
  }
  std::optional<std::string> text(const std::string& key) {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string() || value->get_ref<const std::string&>().empty()) refuse(key + ": want a text", "");
    return value->get<std::string>();
  }
  std::optional<double> number(const std::string& key, double low, double high) {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number() || !(value->get<double>() >= low && value->get<double>() <= high))
      refuse(fmt::format("{}: want a number from {} to {}", key, low, high), "");
    return value->get<double>();
  }
  std::optional<int64_t> count(const std::string& key, int64_t high) {
    const auto value = number(key, 0, static_cast<double>(high));
    if (!value) return std::nullopt;
    if (*value != std::floor(*value)) refuse(key + ": want a whole number", "");
    return static_cast<int64_t>(*value);
  }
  template <typename T>
  void choice(const std::string& key, const std::vector<std::pair<std::string, T>>& names, T& to) {
    const auto value = text(key);
    if (!value) return;
    std::string known;
    for (const auto& [name, one] : names) {
      if (name == *value) {
        to = one;
        return;
      }
      known += (known.empty() ? "" : ", ") + name;
    }
    refuse(fmt::format("{}: found \"{}\"", key, printable(value->substr(0, 60))), "known: " + known);
  }
  void check_unknown() const {
    for (const auto& [key, value] : value_.items()) {
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      std::string all;
      for (const std::string& name : known_) all += (all.empty() ? "" : ", ") + name;
      const auto near = tasks::nearest_names(key, known_);
      refuse(fmt::format("unknown key \"{}\"", printable(key.substr(0, 60))),
             near.empty() ? "known: " + all : fmt::format("did you mean {}?", near.front()));
    }
  }

 private:
  const json& value_;
  std::string where_;
  std::vector<std::string> known_;
};

const std::vector<std::pair<std::string, runs::Tier>> kTiers = {
    {"block", runs::Tier::block}, {"warn", runs::Tier::warn}, {"info", runs::Tier::info}};
const std::vector<std::pair<std::string, runs::GateRule>> kRules = {{"significant", runs::GateRule::significant},
                                                                    {"noninferior", runs::GateRule::noninferior}};

runs::PolicyDefaults read_defaults(const json& value, const std::string& where) {
  runs::PolicyDefaults out;
  Mapping map(value, where);
  map.choice("tier", kTiers, out.tier);
  out.alpha = map.number("alpha", 1e-6, 0.5).value_or(out.alpha);
  map.choice<metrics::Adjust>(
      "adjust", {{"holm", metrics::Adjust::holm}, {"bh", metrics::Adjust::bh}, {"none", metrics::Adjust::none}},
      out.adjust);
  out.min_pairs = map.count("min_pairs", 1'000'000'000).value_or(out.min_pairs);
  map.choice("rule", kRules, out.rule);
  map.choice<runs::OnInconclusive>("on_inconclusive",
                                   {{"fail", runs::OnInconclusive::fail}, {"pass", runs::OnInconclusive::pass}},
                                   out.on_inconclusive);
  map.check_unknown();
  return out;
}

runs::PolicyRule read_rule(const json& value, const std::string& where, const runs::PolicyDefaults& defaults) {
  runs::PolicyRule out;
  Mapping map(value, where);
  const auto task = map.text("task");
  if (!task) map.refuse("a rule needs a task", "write task: niah, or a pattern: task: \"ruler_*\"");
  if (task->size() > 200) map.refuse("task: longer than 200 characters", "");
  out.task = *task;
  out.metric = map.text("metric");
  if (const auto slice = map.text("slice")) out.slice = runs::parse_slice(*slice, out.slice_keys);
  out.tier = defaults.tier;
  map.choice("tier", kTiers, out.tier);
  out.alpha = map.number("alpha", 1e-6, 0.5).value_or(defaults.alpha);
  out.rule = defaults.rule;
  map.choice("rule", kRules, out.rule);
  map.choice<metrics::PairedTest>("test",
                                  {{"auto", metrics::PairedTest::automatic},
                                   {"mcnemar", metrics::PairedTest::mcnemar},
                                   {"permutation", metrics::PairedTest::permutation},
                                   {"bootstrap", metrics::PairedTest::bootstrap}},
                                  out.test);
  out.min_pairs = map.count("min_pairs", 1'000'000'000).value_or(defaults.min_pairs);
  out.max_drop = map.number("max_drop", 0, 1e12);
  out.max_rel = map.number("max_rel", 0, 1e6);
  out.confirm = map.count("confirm", 20).value_or(0);
  map.check_unknown();
  return out;
}

}  // namespace

runs::Policy parse_policy(std::string_view text, const std::string& name) {
  const json document = datasets::parse_yaml(text, name, {});
  Mapping map(document, name);
  const auto schema = map.text("schema");
  if (schema != "hayfork/gate/1") {
    map.refuse(schema ? fmt::format("schema: found \"{}\"", printable(schema->substr(0, 60))) : "it has no schema",
               "write schema: hayfork/gate/1");
  }
  runs::Policy policy;
  policy.text = text;
  if (const json* defaults = map.find("defaults")) policy.defaults = read_defaults(*defaults, name + ", defaults");
  const json* rules = map.find("rules");
  if (rules == nullptr || !rules->is_array() || rules->empty())
    map.refuse("rules: want a list of at least one", "write rules: [{task: niah, max_drop: 0.02}]");
  if (static_cast<int64_t>(rules->size()) > kMaxRules) map.refuse(fmt::format("more than {} rules", kMaxRules), "");
  map.check_unknown();
  for (size_t i = 0; i < rules->size(); ++i)
    policy.rules.push_back(read_rule((*rules)[i], fmt::format("{}, rule {}", name, i + 1), policy.defaults));
  return policy;
}

runs::Policy load_policy(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    throw Error(ErrorCode::usage, ErrorSubject::general, "the gate's policy is not there",
                {.where = path.string(), .next = "docs/gate.md has one to begin with"});
  }
  return parse_policy(read_file(path, ErrorSubject::general), path.string());
}

}  // namespace hayfork::cli
