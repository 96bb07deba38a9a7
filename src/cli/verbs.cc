#include "cli/verbs.h"

#include "cli/site_flags.h"

namespace hayfork::cli {
namespace {

constexpr const char* kFirst = "First steps";
constexpr const char* kEvaluate = "Evaluate";
constexpr const char* kLook = "Look at results";
constexpr const char* kEngine = "Ask the engine";
constexpr const char* kKeep = "Data and database";
constexpr const char* kProgram = "The program itself";

const std::vector<Command>& table() {
  static const std::vector<Command> commands = {
      {"demo",
       kFirst,
       "evaluate the shipped checkpoints on the CPU and draw their heatmaps",
       "Runs needle-in-a-haystack grids and the zoo's own documents (demo/tasks, demo/data) on the demo checkpoints, "
       "stores every sample in OUT/runs.db, writes one heatmap a model and one with all side by side (SVG and PNG), "
       "compares the models in a table, writes the report of all runs (OUT/report.html), and tells what to look at. "
       "Needs no network, no GPU and no configuration.",
       {"hayfork demo", "hayfork demo --full --out /tmp/hayfork-demo"},
       declare_demo},
      {"doctor",
       kFirst,
       "what this machine and this build can do, and what is missing",
       "Exit status 10 when a device that was asked for cannot be used, else 0.",
       {"hayfork doctor"},
       declare_doctor},

      {"run",
       kEvaluate,
       "evaluate a model on tasks and store every sample",
       "Prompts are planned before anything is computed; --dry-run prints that plan and stops. Samples are stored as "
       "they "
       "are answered, so that a run stopped in any way goes on with hayfork resume. Ctrl-C once finishes what is in "
       "flight; twice stops now.",
       {"hayfork run --model smollm2 --tasks niah --lengths 512-2k*2 --depths 0-100+25",
        "hayfork run --model smollm2 --tasks niah --lengths 4k --samples 20 --dry-run"},
       declare_run},
      {"resume",
       kEvaluate,
       "go on with an interrupted run",
       "The same plan minus what is stored; the result is bit for bit that of a run that was never stopped.",
       {"hayfork resume", "hayfork resume r7f3k"},
       declare_resume},
      {"rescore",
       kEvaluate,
       "score stored answers again, without the model's weights",
       "Every way of scoring is computed from what the database keeps of each sample: the options' sums, or the text "
       "that "
       "was written. Needs the model's tokenizer and the data sets. Samples of tasks that keep neither stay as they "
       "are.",
       {"hayfork rescore @last"},
       declare_rescore},
      {"task validate",
       kEvaluate,
       "check a task file, and the rows of its data set",
       "A task file is YAML with lm-evaluation-harness's key names: task, dataset_path, dataset_kwargs, *_split, "
       "output_type (multiple_choice, loglikelihood, generate_until), doc_to_text, doc_to_target, doc_to_choice, "
       "num_fewshot, metric_list, generation_kwargs, description, delimiters. Keys that are not supported are errors.",
       {"hayfork task validate mytask.yaml --data data"},
       declare_task_validate},
      {"task preview",
       kEvaluate,
       "the prompts a task file would send (the same as show prompt)",
       "",
       {"hayfork task preview mytask.yaml --model smollm2 --data data --index 0"},
       declare_show_prompt},

      {"list runs",
       kLook,
       "runs of the database, newest first",
       "",
       {"hayfork list runs --since 7d --filter arch=swa"},
       declare_list_runs},
      {"list models", kLook, "models that have been evaluated", "", {}, declare_list_models},
      {"list tasks", kLook, "tasks this program can run", "", {}, declare_list_tasks},
      {"list suites", kLook, "named lists of tasks", "", {}, declare_list_suites},
      {"list baselines", kLook, "named baselines and the runs they point at", "", {}, declare_list_baselines},
      {"list devices", kLook, "devices runs were made on, and those here", "", {}, declare_list_devices},
      {"show run",
       kLook,
       "one run: results, settings, identities, attempts, warnings",
       "RUN is a run's id, a unique beginning of it, its name, @last, @tag:NAME or @baseline:NAME; RUN:TASK shows one "
       "task. \"hayfork show RUN\" is the same.",
       {"hayfork show @last", "hayfork show r7f3k:niah -o json"},
       declare_show_run},
      {"show sample",
       kLook,
       "one stored sample: prompt, answer, scores",
       "",
       {"hayfork show sample 17"},
       declare_show_sample},
      {"show prompt",
       kLook,
       "the prompts a task would send, without running anything",
       "",
       {"hayfork show prompt niah --model smollm2 --lengths 1k --index 3 --ids"},
       declare_show_prompt},
      {"show prompts", kLook, "the same as show prompt", "", {}, declare_show_prompt},
      {"show model",
       kLook,
       "a model's layers, sizes and memory per token",
       "",
       {"hayfork show model demo/swa"},
       declare_show_model},
      {"show diff-config",
       kLook,
       "where two runs' identities and settings differ",
       "",
       {"hayfork show diff-config @baseline:main @last"},
       declare_show_diff_config},
      {"heatmap",
       kLook,
       "length × depth accuracy as SVG, PNG or in the terminal",
       "Cells that were not run are left out, never drawn as 0; failed samples are hatched. Several runs stand side by "
       "side with the same scale.",
       {"hayfork heatmap @last", "hayfork heatmap r7f3k r7e0a --by model -o niah.svg"},
       declare_heatmap},

      {"report",
       kLook,
       "results as web pages for a colleague: no server, no network, one file when small",
       "Overview of models × tasks, needle heatmaps, curves over length, differences from a baseline, scaling, "
       "timeline, "
       "searches, and a page a run with its provenance and samples. Everything lies in the files; they need no "
       "JavaScript to be read. The same database and flags give the same bytes (docs/report.md).",
       {"hayfork report", "hayfork report -o site --filter series=scaling --baseline @main"},
       declare_report},
      {"serve",
       kLook,
       "the same pages from the database as it is now, for this machine's browser",
       "Listens on 127.0.0.1 alone, only reads the database, and refuses requests that another site's page sends. "
       "--expose makes it reachable from elsewhere, behind a token.",
       {"hayfork serve", "hayfork serve --port 0 --filter tag=nightly"},
       declare_serve},
      {"compare",
       kLook,
       "what changed between runs, and whether it is more than luck",
       "Pairs samples by document and tests the differences (docs/compare.md). Runs whose protocol, prompts or "
       "settings "
       "differ are refused with exit status 2, and the message says in what; 5 when no pair is found.",
       {"hayfork compare @baseline:main @last --by length --flips 5", "hayfork compare r7e0a r7f3k r7g00 -o latex"},
       declare_compare},

      {"table",
       kLook,
       "models × tasks, with intervals, the best marked where it is significant",
       "A named layout has the columns of a paper's table; --published sets its figures beside. Cells that were not "
       "run "
       "are –.",
       {"hayfork table --tasks arc_easy,piqa", "hayfork table --layout orthros-table3 --published -o latex"},
       declare_table},
      {"gate",
       kLook,
       "judge a run against a baseline by the rules of a policy",
       "Exit status 0 when it passes, 1 when a blocking rule fails, 3 when a blocking rule is inconclusive, 5 when "
       "nothing matched, 2 for a policy or runs that cannot be used (docs/gate.md). Only gate stores comparisons.",
       {"hayfork gate @last --baseline @main --policy gate.yaml --junit gate.xml"},
       declare_gate},
      {"baseline set",
       kLook,
       "name a finished run as the baseline NAME",
       "Append-only: a name that is set again keeps its history; the newest counts.",
       {"hayfork baseline set main r7f3k"},
       declare_baseline_set},
      {"baseline clear", kLook, "let a baseline's name point at nothing", "", {}, declare_baseline_clear},
      {"tag add",
       kLook,
       "tag a run; @tag:NAME finds the newest that has it",
       "",
       {"hayfork tag add r7f3k nightly"},
       declare_tag_add},
      {"tag remove", kLook, "take tags from a run", "", {}, declare_tag_remove},
      {"describe",
       kLook,
       "set a run's name and note, its model's series, tokens and step",
       "",
       {"hayfork describe r7f3k --series scaling --train-tokens 100000000000"},
       declare_describe},

      {"bench",
       kEngine,
       "how fast a model computes here: prefill, decode, memory, beside the device's floor",
       "Made-up token ids; times are the host's, with the device idle before and after. pp512 is a prompt of 512 "
       "tokens, "
       "its time the time to the first new token; tg128 is 128 tokens generated behind it. busy is the share of the "
       "time "
       "in which the device worked on a pass, by its own clock around each.",
       {"hayfork bench --model smollm2 --prompt 512,2k --gen 64",
        "hayfork bench --model random:qwen3-8b --prompt 2k-128k*4 --batch 1,8 --reps 3 --save"},
       declare_bench},
      {"probe tokenize",
       kEngine,
       "text to token ids and back",
       "One JSON line an input: {\"ids\":[…]} or {\"text\":…}.",
       {"hayfork probe tokenize --model smollm2 --text 'Hello world'"},
       declare_probe_tokenize},
      {"probe logits",
       kEngine,
       "logits of given ids, to a safetensors file",
       "F.json: {\"ids\":[[…],…]}. OUT gets the tensors \"logits.<i>\" [rows, V] f32.",
       {"hayfork probe logits --model M --ids-file ids.json --out logits.safetensors"},
       declare_probe_logits},
      {"probe logprobs",
       kEngine,
       "log-probabilities of continuations",
       "A request is a JSON line {\"context\":text|ids,\"continuations\":[text|ids,…]}; the answer "
       "{\"logprob\":[…],\"is_greedy\":[…],\"n_tokens\":[…],\"tokens\":[[…],…],\"token_logprobs\":[[…],…]}. For texts, "
       "blanks at the context's end move to the continuation, and the continuation's ids are what the whole text adds "
       "to "
       "the context's ids.",
       {"hayfork probe logprobs --model M --requests requests.jsonl"},
       declare_probe_logprobs},
      {"probe nll",
       kEngine,
       "negative log-likelihood of tokens",
       "A request is a JSON line {\"tokens\":ids} or {\"text\":…} with \"positions\":[…] or null (all but the first); "
       "the "
       "answer {\"nll\":[…]}.",
       {"hayfork probe nll --model M --requests requests.jsonl"},
       declare_probe_nll},
      {"probe generate",
       kEngine,
       "continue prompts, greedily",
       "A request is a JSON line {\"prompt\":text|ids,\"max_new_tokens\":n,\"stop\":[…],\"ignore_eos\":bool}; the "
       "answer "
       "{\"ids\":[…],\"text\":…,\"finish\":…}.",
       {"hayfork probe generate --model M --requests requests.jsonl"},
       declare_probe_generate},
      {"probe chat",
       kEngine,
       "render messages with the model's chat template",
       "",
       {"hayfork probe chat --model M --messages messages.json"},
       declare_probe_chat},
      {"probe kv",
       kEngine,
       "keys and values of one layer, to a safetensors file",
       "OUT gets \"k.<i>\" and \"v.<i>\" [T, Hkv, d] f32.",
       {"hayfork probe kv --model M --ids-file ids.json --layer last --out kv.safetensors"},
       declare_probe_kv},

      {"data list", kKeep, "data sets in the data folder", "", {}, declare_data_list},
      {"data add",
       kKeep,
       "put a data set into the data folder, with a manifest",
       "NAME is what tasks ask for (arc_easy, mmlu, race, …). Takes rows as Hugging Face's copies have them (JSONL, "
       "one "
       "JSON list, CSV, TSV), OLMES request files, and the original files of the sets that hayfork list tasks needs; "
       "any "
       "of them gzipped, and folders of files for MMLU, C-Eval, CMMLU and RACE. Rows are turned into the first form "
       "and "
       "checked; the manifest keeps source, licence, rows and SHA-256.",
       {"hayfork data add arc_easy test=ARC-Easy-Test.jsonl train=ARC-Easy-Train.jsonl",
        "hayfork data add piqa validation=dev.jsonl,dev-labels.lst",
        "hayfork data add mmlu test=data/test dev=data/dev",
        "hayfork data add mydata test=test.jsonl --source https://example.org --license CC0-1.0"},
       declare_data_add},
      {"data verify", kKeep, "compare the data folder with its manifests", "", {}, declare_data_verify},
      {"import",
       kKeep,
       "results of other programs as runs",
       "lm-eval: results_*.json with samples_*.jsonl; llama-bench: JSON; ruler: prediction files; hayfork: another "
       "database. Files are read whole first: one with a fault changes nothing.",
       {"hayfork import lm-eval results_2026-11-01.json --samples samples_arc_easy_2026-11-01.jsonl",
        "hayfork import hayfork baseline.db"},
       declare_import},
      {"export runs", kKeep, "every run as a table", "", {"hayfork export runs -o csv"}, declare_export_runs},
      {"export samples",
       kKeep,
       "every sample of a run",
       "-o jsonl and csv are printed as they are read.",
       {"hayfork export samples r7f3k:niah -o jsonl"},
       declare_export_samples},
      {"export metrics",
       kKeep,
       "every aggregate of runs",
       "",
       {"hayfork export metrics r7f3k -o latex"},
       declare_export_metrics},
      {"export niah",
       kKeep,
       "length × depth cells of a run",
       "",
       {"hayfork export niah @last -o csv"},
       declare_export_niah},
      {"export lm-eval",
       kKeep,
       "a run in lm-evaluation-harness's own files",
       "results_<date>.json and samples_<task>_<date>.jsonl in DIR/<model>.",
       {"hayfork export lm-eval @last --out lm-eval-files"},
       declare_export_lm_eval},

      {"db check", kKeep, "look for damage in the database", "", {}, declare_db_check},
      {"db digest",
       kKeep,
       "SHA-256 over what must be equal between two runs of one plan",
       "No times, row ids, batch sizes or hosts: a run that was killed and resumed, sharded and merged, or batched "
       "otherwise has the same digest.",
       {"hayfork db digest @last"},
       declare_db_digest},
      {"db vacuum", kKeep, "drop texts nothing refers to and compact the file", "", {}, declare_db_vacuum},
      {"db merge",
       kKeep,
       "add another database's runs; shards of one plan become one run",
       "Samples that are in both must agree, or nothing is changed.",
       {"hayfork db merge shard2.db"},
       declare_db_merge},
      {"db prune",
       kKeep,
       "delete the samples of old runs; their results stay",
       "Runs with a tag, baselines and the newest --keep runs are left whole.",
       {"hayfork db prune --keep 50"},
       declare_db_prune},
      {"db migrate", kKeep, "bring the database to this version's schema, keeping a copy", "", {}, declare_db_migrate},

      {"config",
       kProgram,
       "settings in force, and where each comes from",
       "",
       {"hayfork config --explain"},
       declare_config},
      {"explain",
       kProgram,
       "what a code such as HAY-W003 or an exit status means",
       "",
       {"hayfork explain HAY-W003"},
       declare_explain},
      {"completion",
       kProgram,
       "completion script for a shell",
       "",
       {"source <(hayfork completion bash)", "hayfork completion fish > ~/.config/fish/completions/hayfork.fish"},
       declare_completion},
      {"version", kProgram, "version and commit", "", {"hayfork version --json"}, declare_version},
      {"help", kProgram, "this list, or the flags of one verb", "", {"hayfork help run"}, declare_help},
  };
  return commands;
}

}  // namespace

std::span<const Command> commands() {
  return table();
}

const Command& complete_command() {
  static const Command command = {"__complete", kProgram, "candidates for the completion scripts",
                                  "",           {},       declare_complete};
  return command;
}

}  // namespace hayfork::cli
