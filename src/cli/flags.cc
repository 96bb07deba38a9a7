#include "cli/flags.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/units.h"
#include "cli/suggest.h"

namespace hayfork::cli {
namespace {

using Values = std::vector<std::string>;

[[noreturn]] void refuse(const std::string& what, const std::string& why, const std::string& next = {}) {
  throw Error(ErrorCode::usage, ErrorSubject::general, what, {.why = why, .next = next});
}

const std::string& last(const Values& values) {
  static const std::string empty;
  return values.empty() ? empty : values.back();
}

std::string cut(std::string_view text) {
  return std::string(text.substr(0, 60));
}

template <typename Int>
Int to_count(const std::string& text, const std::string& flag) {
  const int64_t value = parse_count(text, flag);
  if (value > static_cast<int64_t>(std::numeric_limits<Int>::max())) {
    refuse(fmt::format("{}: {} is too large", flag, cut(text)),
           fmt::format("the largest is {}", std::numeric_limits<Int>::max()));
  }
  return static_cast<Int>(value);
}

double to_real(const std::string& text, const std::string& flag) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value - value == 0)) {
    refuse(fmt::format("{}: cannot read \"{}\"", flag, cut(text)), "want a number");
  }
  return value;
}

bool to_bool(const std::string& text, const std::string& flag) {
  static const std::set<std::string> yes = {"on", "true", "yes", "1"}, no = {"off", "false", "no", "0"};
  if (yes.contains(text)) return true;
  if (no.contains(text)) return false;
  refuse(fmt::format("{}: cannot read \"{}\"", flag, cut(text)), "want on or off");
}

template <typename Number>
std::string joined(const std::vector<Number>& values) {
  std::string text;
  for (const Number& value : values) text += (text.empty() ? "" : ",") + fmt::format("{}", value);
  return text;
}

void append_items(const std::string& text, bool commas, Values& to) {
  if (!commas) {
    to.push_back(text);
    return;
  }
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    if (comma > begin) to.push_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
}

std::string list_of(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

struct Flags::Impl {
  CLI::App app;
  std::map<std::string, CLI::Option*> options;
  std::map<std::string, std::function<void(const Values&)>> setters;
  std::set<std::string> given;
};

Flags::Flags() : impl_(std::make_unique<Impl>()) {
  impl_->app.set_help_flag();
  impl_->app.allow_extras(true);
}
Flags::~Flags() = default;

std::string fold_underscores(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

void Flags::group(std::string name) {
  group_ = std::move(name);
}

FlagInfo& Flags::declare(const std::string& name, const std::string& value, const std::string& help,
                         std::function<void(const Values&)> set) {
  auto info = std::make_unique<FlagInfo>();
  info->group = group_;
  info->value = value;
  info->help = help;
  info->name = name;
  if (name.size() > 2 && name[1] == ',') {
    info->letter = name[0];
    info->name = name.substr(2);
  }
  const std::string spec =
      info->letter != 0 ? fmt::format("-{},--{}", info->letter, info->name) : fmt::format("--{}", info->name);
  const auto keep = [this, key = info->name, set](const CLI::results_t& values) {
    impl_->given.insert(key);
    set(values);
    return true;
  };
  CLI::Option* option = nullptr;
  if (value.empty()) {  // counts its uses; --flag=false counts down
    option = impl_->app.add_flag_function(
        spec, [keep](int64_t n) { keep(n > 0 ? Values{} : Values{"false"}); }, "");
  } else {
    option = impl_->app.add_option(spec, keep, "")->type_size(1)->expected(1)->allow_extra_args(false);
  }
  if (!value.empty()) option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  impl_->options[info->name] = option;
  impl_->setters[info->name] = keep;
  infos_.push_back(std::move(info));
  return *infos_.back();
}

FlagInfo& Flags::text(const std::string& name, std::string& to, const std::string& value, const std::string& help) {
  FlagInfo& info = declare(name, value, help, [&to](const Values& values) { to = last(values); });
  info.preset = to;
  return info;
}

FlagInfo& Flags::toggle(const std::string& name, bool& to, const std::string& help) {
  const std::string flag = "--" + name.substr(name.find(',') + 1);
  return declare(name, "", help,
                 [&to, flag](const Values& values) { to = values.empty() || to_bool(last(values), flag); });
}

FlagInfo& Flags::choice(const std::string& name, std::string& to, std::vector<std::string> choices,
                        const std::string& help) {
  const std::string flag = "--" + name.substr(name.find(',') + 1);
  FlagInfo& info = declare(name, list_of(choices), help, [&to, choices, flag](const Values& values) {
    if (std::find(choices.begin(), choices.end(), last(values)) == choices.end()) {
      refuse(fmt::format("{}: unknown value \"{}\"", flag, cut(last(values))), "want one of: " + list_of(choices),
             did_you_mean(last(values), choices, ""));
    }
    to = last(values);
  });
  info.value.clear();
  for (const std::string& word : choices) info.value += (info.value.empty() ? "" : "|") + word;
  info.choices = std::move(choices);
  info.preset = to;
  return info;
}

FlagInfo& Flags::on_off(const std::string& name, bool& to, const std::string& help) {
  FlagInfo& info = declare(name, "on|off", help,
                           [&to, flag = "--" + name](const Values& values) { to = to_bool(last(values), flag); });
  info.choices = {"on", "off"};
  info.preset = to ? "on" : "off";
  return info;
}

FlagInfo& Flags::count(const std::string& name, int64_t& to, const std::string& value, const std::string& help) {
  FlagInfo& info = declare(name, value, help, [&to, flag = "--" + name](const Values& values) {
    to = to_count<int64_t>(last(values), flag);
  });
  if (to != 0) info.preset = std::to_string(to);
  return info;
}

FlagInfo& Flags::count(const std::string& name, int32_t& to, const std::string& value, const std::string& help) {
  FlagInfo& info = declare(name, value, help, [&to, flag = "--" + name](const Values& values) {
    to = to_count<int32_t>(last(values), flag);
  });
  if (to != 0) info.preset = std::to_string(to);
  return info;
}

FlagInfo& Flags::count(const std::string& name, std::optional<int64_t>& to, const std::string& value,
                       const std::string& help) {
  return declare(name, value, help,
                 [&to, flag = "--" + name](const Values& values) { to = to_count<int64_t>(last(values), flag); });
}

FlagInfo& Flags::real(const std::string& name, double& to, const std::string& value, const std::string& help) {
  FlagInfo& info =
      declare(name, value, help, [&to, flag = "--" + name](const Values& values) { to = to_real(last(values), flag); });
  info.preset = fmt::format("{}", to);
  return info;
}

FlagInfo& Flags::counts(const std::string& name, std::vector<int64_t>& to, const std::string& value,
                        const std::string& help) {
  FlagInfo& info = declare(
      name, value, help, [&to, flag = "--" + name](const Values& values) { to = parse_counts(joined(values), flag); });
  info.preset = joined(to);
  return info;
}

FlagInfo& Flags::numbers(const std::string& name, std::vector<double>& to, const std::string& value,
                         const std::string& help) {
  FlagInfo& info = declare(
      name, value, help, [&to, flag = "--" + name](const Values& values) { to = parse_numbers(joined(values), flag); });
  info.preset = joined(to);
  return info;
}

FlagInfo& Flags::list(const std::string& name, std::vector<std::string>& to, const std::string& value,
                      const std::string& help, bool commas) {
  FlagInfo& info = declare(name, value, help, [&to, commas](const Values& values) {
    to.clear();
    for (const std::string& text : values) append_items(text, commas, to);
  });
  info.preset = list_of(to);
  info.repeated = true;
  return info;
}

FlagInfo& Flags::argument(const std::string& name, std::string& to, const std::string& help) {
  auto info = std::make_unique<FlagInfo>();
  info->name = info->value = name;
  info->help = help;
  info->group = "Arguments";
  info->preset = to;
  info->argument = true;
  info->configurable = false;
  const std::string inner = fmt::format("argument{}", infos_.size());  // CLI11 wants plain names
  impl_->options[name] = impl_->app
                             .add_option(inner, CLI::callback_t([this, name, &to](const CLI::results_t& values) {
                                           impl_->given.insert(name);
                                           to = last(values);
                                           return true;
                                         }))
                             ->expected(1)
                             ->allow_extra_args(false);
  infos_.push_back(std::move(info));
  return *infos_.back();
}

FlagInfo& Flags::arguments(const std::string& name, std::vector<std::string>& to, const std::string& help) {
  auto info = std::make_unique<FlagInfo>();
  info->name = info->value = name;
  info->help = help;
  info->group = "Arguments";
  info->argument = info->repeated = true;
  info->configurable = false;
  const std::string inner = fmt::format("argument{}", infos_.size());
  impl_->options[name] = impl_->app
                             .add_option(inner, CLI::callback_t([this, name, &to](const CLI::results_t& values) {
                                           impl_->given.insert(name);
                                           to = values;
                                           return true;
                                         }))
                             ->expected(1, 1 << 20)
                             ->allow_extra_args(true)
                             ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  infos_.push_back(std::move(info));
  return *infos_.back();
}

void Flags::parse(std::vector<std::string> words) {
  for (std::string& word :
       words) {  // --num_fewshot is --num-fewshot; values behind "=" and plain words stay as they are
    if (word == "--") break;
    if (!word.starts_with("--")) continue;
    const size_t equals = std::min(word.find('='), word.size());
    const std::string folded = fold_underscores(word.substr(2, equals - 2));
    const FlagInfo* flag = find(folded);
    for (const auto& info : infos_) {
      if (flag == nullptr && !folded.empty() && info->alias == folded) flag = info.get();
    }
    if (flag != nullptr) word = "--" + flag->name + word.substr(equals);
  }
  std::reverse(words.begin(), words.end());  // CLI11 takes its vector from the back
  try {
    impl_->app.parse(words);
  } catch (const CLI::ArgumentMismatch& e) {
    const std::string text = e.what();
    refuse(fmt::format("{} needs a value", cut(text.substr(0, text.find(':')))), "", "see --help");
  } catch (const CLI::ParseError& e) {
    refuse(cut(e.what()), "", "see --help");
  }
  for (const std::string& word : impl_->app.remaining()) {
    if (word == "--") continue;
    if (word.size() > 1 && word[0] == '-') {
      const std::string flag = word.substr(0, word.find('='));
      refuse(fmt::format("unknown flag {}", cut(flag)), "",
             did_you_mean(fold_underscores(flag), names(), "see --help"));
    }
    refuse(fmt::format("unexpected argument \"{}\"", cut(word)), "", "see --help");
  }
}

bool Flags::given(std::string_view name) const {
  return impl_->given.contains(std::string(name));
}

void Flags::set(const std::string& name, const Values& values) {
  impl_->setters.at(name)(values);
}

void Flags::check_required(const std::string& verb) const {
  for (const auto& info : infos_) {
    if (!info->required || given(info->name)) continue;
    const std::string shown = info->argument ? info->name : fmt::format("--{} {}", info->name, info->value);
    refuse(fmt::format("{} needs {}", verb, shown), "", fmt::format("hayfork {} --help", verb));
  }
}

const FlagInfo* Flags::find(std::string_view name) const {
  for (const auto& info : infos_) {
    if (!info->argument && info->name == name) return info.get();
  }
  return nullptr;
}

std::vector<std::string> Flags::names() const {
  std::vector<std::string> names;
  for (const auto& info : infos_) {
    if (!info->argument) names.push_back("--" + info->name);
    if (!info->alias.empty()) names.push_back("--" + info->alias);
  }
  return names;
}

}  // namespace hayfork::cli
