#include "runs/gate.h"

#include <set>

#include <fmt/format.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/file_map.h"
#include "cli/compare_flags.h"
#include "cli/confirm.h"
#include "cli/gate_files.h"
#include "cli/policy.h"
#include "cli/verbs.h"
#include "tasks/tasks.h"

namespace hayfork::cli {
namespace {

struct GateVerb {
  std::string candidate = "@last", baseline, policy, junit, md;
  bool allow_partial = false, record = true;
  int64_t seed = 0;
  ExecuteOptions execute;  // device and threads of what `confirm` reruns
  OutputOptions output;
};

runs::GateOptions gate_options(const GateVerb& verb) {
  runs::GateOptions options;
  options.groups = known_groups();
  for (const tasks::TaskEntry& entry : tasks::task_table()) options.known_tasks.push_back(entry.name);
  options.allow_partial = verb.allow_partial;
  options.seed = static_cast<uint64_t>(verb.seed);
  return options;
}

// Reruns for the rules that failed and ask for confirmation, a task once with the most rounds asked for.
void confirm(const runs::GateResult& result, runs::Store& store, const runs::RunView& base, const runs::RunView& cand,
             const GateVerb& verb, runs::GateOptions& options, Console& console) {
  std::map<std::string, int64_t> rounds;
  for (const runs::JudgedRule& judged : result.rules) {
    if (judged.verdict == runs::GateVerdict::fail && judged.rule.confirm > 0)
      rounds[judged.row.task] = std::max(rounds[judged.row.task], judged.rule.confirm);
  }
  for (const auto& [task, n] : rounds) {
    const auto group = options.groups.find(task);
    std::vector<std::string> members;
    for (const std::string& member : group == options.groups.end() ? std::vector{task} : group->second) {
      if (runs::find_run_task(cand, member) != nullptr) members.push_back(member);
    }
    console.note(fmt::format("{} failed: running it again with {} new seeds to be sure", task, n));
    try {
      auto pairs = confirm_runs(store, base, cand, members, n, verb.execute, console);
      if (pairs.empty()) console.note(fmt::format("{} has no seed: it is not run again", task));
      if (!pairs.empty()) options.reruns[task] = std::move(pairs);
    } catch (const Error& error) {  // a baseline's model may be on another machine: the first verdict stands
      if (error.subject() != ErrorSubject::model && error.subject() != ErrorSubject::data) throw;
      console.warn("HAY-W030",
                   fmt::format("{} could not be run again ({}): its first verdict stands", task, error.what()));
    }
  }
}

void record(runs::Store& store, const runs::GateResult& result, const runs::Policy& policy, const runs::RunView& base,
            const runs::RunView& cand, const GateVerb& verb) {
  runs::GateRow gate;
  gate.base = base.run.id;
  gate.cand = cand.run.id;
  if (verb.baseline.starts_with("@")) {
    const std::string name = verb.baseline.substr(1);
    gate.baseline_name = name.starts_with("baseline:") ? name.substr(9) : name;
  }
  gate.policy_text = policy.text;
  gate.policy_sha256 = sha256_hex(policy.text);
  gate.verdict = runs::name(result.verdict);
  gate.exit_code = result.exit_code;
  std::vector<runs::ComparisonRow> rows;
  for (const runs::JudgedRule& judged : result.rules) {
    if (judged.row.result.n == 0) continue;
    runs::ComparisonRow row;
    row.base = gate.base;
    row.cand = gate.cand;
    row.task = judged.row.task;
    row.slice = judged.row.slice;
    row.metric = judged.row.metric;
    row.test = judged.row.result.test;
    row.n_pairs = judged.row.result.n;
    row.worse = judged.row.result.n_worse;
    row.better = judged.row.result.n_better;
    row.delta = judged.row.delta();
    if (const auto interval = judged.row.delta_interval()) {
      row.ci_low = interval->low;
      row.ci_high = interval->high;
    }
    row.p = judged.row.result.p;
    row.p_adj = judged.row.p_adj;
    row.mde = judged.row.result.mde;
    row.verdict = judged.row.verdict;
    row.policy_sha256 = gate.policy_sha256;
    rows.push_back(std::move(row));
  }
  store.add_gate(gate, rows);
}

void print_lines(const runs::GateResult& result, Console& console) {
  std::map<std::string, int64_t> counts;
  for (const runs::JudgedRule& judged : result.rules) {
    const std::string word = gate_word(judged);
    ++counts[word];
    const Style style = word == "FAIL"                             ? Style::red
                        : word == "PASS"                           ? Style::green
                        : word == "WARN" || word == "INCONCLUSIVE" ? Style::yellow
                                                                   : Style::dim;
    console.out(console.styled(style, gate_line(judged), false) + "\n");
  }
  std::string line;
  for (const auto& [word, n] : counts) line += fmt::format("{}{} {}", line.empty() ? "" : ", ", n, word);
  console.out(fmt::format("{}: {}\n", runs::name(result.verdict), line));
}

int gate(const GateVerb& verb, Console& console) {
  const runs::Policy policy = load_policy(verb.policy);
  runs::Store store = verb.record ? open_to_change(verb.execute.db, console) : open_to_read(verb.execute.db, console);
  const runs::RunView base = store.show_run(store.find_run(verb.baseline).id);
  const runs::RunView cand = store.show_run(store.find_run(verb.candidate).id);
  runs::GateOptions options = gate_options(verb);
  runs::GateResult result = runs::judge(store, base, cand, policy, options);
  if (verb.record) confirm(result, store, base, cand, verb, options, console);
  if (!options.reruns.empty()) result = runs::judge(store, base, cand, policy, options);
  if (verb.record && result.exit_code != 5) record(store, result, policy, base, cand, verb);
  store.close();
  if (!verb.junit.empty()) write_file_atomically(verb.junit, junit_xml(result, base, cand, verb.policy));
  if (!verb.md.empty()) write_file_atomically(verb.md, gate_markdown(result, base, cand, verb.policy));
  if (verb.output.format == "table") {
    print_lines(result, console);
  } else {
    runs::Section head{.name = "gate",
                       .table = {{{.name = "verdict"},
                                  {.name = "exit_code", .type = runs::CellType::integer},
                                  {.name = "baseline"},
                                  {.name = "candidate"},
                                  {.name = "policy_sha256"}},
                                 {{std::string(runs::name(result.verdict)), static_cast<int64_t>(result.exit_code),
                                   base.run.run_id, cand.run.run_id, sha256_hex(policy.text)}}},
                       .record = true};
    print(console, {"gate", {std::move(head), gate_section(result)}}, verb.output);
  }
  if (result.exit_code == 5) {
    console.error(Error(ErrorCode::not_found, ErrorSubject::general, "no rule of the policy found a pair of samples",
                        {.where = verb.policy, .next = "hayfork compare shows what the two runs have in common"}));
  }
  return result.exit_code;
}

}  // namespace

Action declare_gate(Flags& flags) {
  auto options = std::make_shared<GateVerb>();
  flags.argument("CAND", options->candidate, "The run to judge.").kind = "run";
  flags.group("Gate");
  FlagInfo& baseline =
      flags.text("baseline", options->baseline, "RUN", "What it must not be worse than: a run, or @main.");
  baseline.required = true;
  baseline.kind = "run";
  FlagInfo& policy = flags.text("policy", options->policy, "FILE", "The rules, YAML of schema hayfork/gate/1.");
  policy.required = true;
  policy.kind = "file";
  flags.text("junit", options->junit, "FILE", "Also write the verdict as JUnit XML.").kind = "file";
  flags.text("md", options->md, "FILE", "Also write it as Markdown.").kind = "file";
  flags.toggle("allow-partial", options->allow_partial, "Judge the documents both runs have.").configurable = false;
  flags.on_off("record", options->record, "Store the verdict in the database; confirm needs it.");
  flags.count("stat-seed", options->seed, "N", "Seed of the bootstrap and of drawn permutations.");
  flags.group("What confirm reruns");
  flags.text("device", options->execute.engine.device, "NAME", "auto, cpu or cuda:0.");
  flags.count("threads", options->execute.engine.threads, "N", "Threads. Default: every core this process may use.");
  declare_db(flags, options->execute.db);
  declare_output(flags, options->output);
  return [options](Console& console) { return gate(*options, console); };
}

}  // namespace hayfork::cli
