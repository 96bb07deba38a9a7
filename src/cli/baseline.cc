// Names for runs: baselines (append-only), tags, names and notes, and what a model's checkpoint is in its series.
#include <cctype>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "cli/output.h"
#include "cli/verbs.h"

namespace hayfork::cli {
namespace {

struct NamingVerb {
  DbOptions db;
  std::string name, run = "@last";
  std::vector<std::string> tags;
  std::string new_name, note, series;
  std::optional<int64_t> train_tokens, train_step;
};

// What may stand behind @ and in @tag:x without being taken for something else.
void check_name(const std::string& what, const std::string& name) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '/';
  };
  if (!name.empty() && name.size() <= 100 && std::all_of(name.begin(), name.end(), plain) && name != "last") return;
  throw Error(ErrorCode::usage, ErrorSubject::general,
              fmt::format("{}: cannot use \"{}\"", what, printable(name.substr(0, 60))),
              {.next = "letters, digits, - _ . and /, at most 100; not \"last\""});
}

int set_baseline(const NamingVerb& options, Console& console) {
  check_name("baseline", options.name);
  runs::Store store = open_to_change(options.db, console);
  const runs::RunRow run = store.find_run(options.run);
  const std::string status = store.shown_status(run);
  if (status != "done" && status != "imported") {
    throw Error(ErrorCode::usage, ErrorSubject::database,
                fmt::format("run {} is {}: it cannot be a baseline", run.run_id, status),
                {.where = options.db.db, .next = fmt::format("hayfork resume {} finishes it", run.run_id)});
  }
  const std::string user = environment("USER");
  store.set_baseline(options.name, run.id, user.empty() ? runs::OptText() : runs::OptText(user));
  store.close();
  console.note(fmt::format("@{} is {}", options.name, run.run_id));
  return 0;
}

int clear_baseline(const NamingVerb& options, Console& console) {
  check_name("baseline", options.name);
  runs::Store store = open_to_change(options.db, console);
  const auto all = store.list_baselines();
  if (std::none_of(all.begin(), all.end(),
                   [&](const runs::BaselineListRow& row) { return row.name == options.name && row.run_id; })) {
    throw Error(ErrorCode::usage, ErrorSubject::database, fmt::format("no baseline \"{}\" is set", options.name),
                {.where = options.db.db, .next = "hayfork list baselines"});
  }
  store.set_baseline(options.name, std::nullopt, {});
  store.close();
  console.note(fmt::format("@{} is cleared; its history is kept", options.name));
  return 0;
}

int tag(const NamingVerb& options, bool add, Console& console) {
  for (const std::string& name : options.tags) check_name("tag", name);
  runs::Store store = open_to_change(options.db, console);
  const runs::RunRow run = store.find_run(options.run);
  for (const std::string& name : options.tags) add ? store.add_tag(run.id, name) : store.remove_tag(run.id, name);
  store.close();
  return 0;
}

int describe(const NamingVerb& options, const Flags& flags, Console& console) {
  runs::Store store = open_to_change(options.db, console);
  const runs::RunRow run = store.find_run(options.run);
  const auto given = [](const std::string& text) { return text.empty() ? runs::OptText() : runs::OptText(text); };
  if (flags.given("name")) store.set_name(run.id, given(options.new_name));
  if (flags.given("note")) store.set_note(run.id, given(options.note));
  if (flags.given("series") || options.train_tokens || options.train_step)
    store.describe_model(run.model_id, given(options.series), options.train_tokens, options.train_step);
  store.close();
  return 0;
}

std::shared_ptr<NamingVerb> declare(Flags& flags) {
  auto options = std::make_shared<NamingVerb>();
  declare_db(flags, options->db);
  return options;
}

Action declare_tags(Flags& flags, bool add) {
  auto options = declare(flags);
  FlagInfo& run = flags.argument("RUN", options->run, "Which run.");
  run.required = true;
  run.kind = "run";
  flags.arguments("TAG", options->tags, "One tag or several.").required = true;
  return [options, add](Console& console) { return tag(*options, add, console); };
}

}  // namespace

Action declare_baseline_set(Flags& flags) {
  auto options = declare(flags);
  flags.argument("NAME", options->name, "What it is called: @NAME finds it.").required = true;
  FlagInfo& run = flags.argument("RUN", options->run, "The run; the newest when left out.");
  run.kind = "run";
  return [options](Console& console) { return set_baseline(*options, console); };
}

Action declare_baseline_clear(Flags& flags) {
  auto options = declare(flags);
  flags.argument("NAME", options->name, "Which name.").required = true;
  return [options](Console& console) { return clear_baseline(*options, console); };
}

Action declare_tag_add(Flags& flags) {
  return declare_tags(flags, true);
}
Action declare_tag_remove(Flags& flags) {
  return declare_tags(flags, false);
}

Action declare_describe(Flags& flags) {
  auto options = declare(flags);
  FlagInfo& run = flags.argument("RUN", options->run, "Which run.");
  run.required = true;
  run.kind = "run";
  flags.group("What to set");
  flags.text("name", options->new_name, "NAME", "Name of the run; \"\" takes it away.").configurable = false;
  flags.text("note", options->note, "TEXT", "Note for people; \"\" takes it away.").configurable = false;
  flags.text("series", options->series, "NAME", "Series of checkpoints that its model belongs to.").configurable =
      false;
  flags.count("train-tokens", options->train_tokens, "N", "Tokens its model was trained on.").configurable = false;
  flags.count("train-step", options->train_step, "N", "Training step of its model.").configurable = false;
  return [options, &flags](Console& console) { return describe(*options, flags, console); };
}

}  // namespace hayfork::cli
