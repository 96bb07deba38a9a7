// Tasks: what a benchmark asks a model, and what it makes of the answers. A Task is made once from options and a text
// side (tokenizer, BOS, chat template); then it gives sample i alone (any order, any thread, the same bytes whatever
// limit or shard), scores one sample's answers, and folds scores into aggregates. It never runs a model, never prints,
// and knows neither the command line nor the store: `tasks/run_task.h` drives an Lm with it, and the caller turns
// Sample and SampleScore into rows. Of the engine it sees lm.h and text/tokenizer.h only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/events.h"
#include "engine/lm.h"

namespace hayfork::tasks {

// ---- What a task is ------------------------------------------------------------------------------------------------

struct MetricDef {
  std::string name;  // "acc"
  bool higher_is_better = true;
  std::string agg = "mean";
  std::string unit = {};  // "", "%", "nats"
};

struct DatasetInfo {
  std::string name, version, sha256;
  std::optional<int64_t> n_docs;
  std::string license;
};

struct TaskInfo {
  std::string name, family, version;
  std::string kind;      // choice, generate, rolling, longppl, group
  std::string protocol;  // "niah/number/1", "ruler/p1/niah_single_1", "lm-eval/arc_easy/1.0": the pairing key
  std::string primary_metric;
  bool higher_is_better = true;
  std::vector<MetricDef> metrics;
  std::string config_json;  // canonical JSON of all that can change a score: options resolved, texts, budgets, digests
  std::string cluster;      // what Sample::cluster means ("seed index", "article"); "" when samples are independent
  std::optional<DatasetInfo> dataset;
  int64_t num_fewshot = 0;
  int64_t fewshot_seed = -1;  // −1: none drawn
  std::string seeds_json;     // seeds in use, as JSON: {"seed":0}
  bool official = true;       // false: --seed or another switch left the published protocol
};

// ---- What it is made from ------------------------------------------------------------------------------------------

struct ChatMessage {
  std::string role, content;
};
// Renders a conversation with the checkpoint's template.
using ChatRenderer = std::function<std::string(std::span<const ChatMessage>, bool add_generation_prompt)>;

// The text side of a model. Borrowed things must outlive the task.
struct TextContext {
  const engine::Tokenizer* tokenizer = nullptr;
  bool add_bos = false;         // resolved by the caller; needs tokenizer->bos_id(). Not used under a chat template
  bool parse_special = false;   // special tokens spelled out in documents become control ids
  ChatRenderer chat = {};       // empty: no chat template
  bool merge_turns = false;     // chat: demonstrations and question are one user's turn, not turns of their own
  std::string system = {};      // system text; needs chat
  int64_t max_length = 0;       // the model's window in tokens; 0: unknown or not to be checked
  int64_t window = 0;           // the same for tasks that cut what is too long, checked or not; 0: unknown
  std::string hints_json = {};  // hayfork.json of the checkpoint, as text: {"niah":{"kind":"secret"}}; "" when absent
};

struct TaskOptions {
  std::vector<int64_t> lengths;    // tokens, prompt and answer together; empty: the task's own
  std::vector<double> depths;      // percent; empty: the task's own
  std::optional<int64_t> samples;  // per cell (length, depth, subtask) of a generated task
  std::optional<int64_t> limit;    // documents of a data set, samples per cell of a generated task: the first so many
  std::optional<uint64_t> seed;    // overrides every seed of the protocol
  std::optional<int64_t> num_fewshot;
  std::optional<int64_t> fewshot_seed;
  std::filesystem::path data_dir;  // data sets by folder; may be empty
  std::vector<std::filesystem::path>
      share_dirs;                            // where the product's own data lies (see datasets/haystack.h), in order
  std::map<std::string, std::string> extra;  // keys of TaskEntry::options; others are refused with what is near
  EventSink events = {};                     // warnings while the task is made
};

// A key of TaskOptions::extra, for help texts and flags: {"kind", "NAME", "number, secret, …", "number"}.
struct OptionDef {
  std::string key, value_name, help, default_value;
  std::string flag = {};  // of the command line; "": the family's name and the key
};

// ---- Samples -------------------------------------------------------------------------------------------------------

// Which sample: known without tokenizing anything. (doc_id, repeat) is unique within a task.
struct SampleKey {
  std::string doc_id;
  std::string doc_sha256;  // pairs samples of different runs
  int64_t repeat = 0;
  std::optional<std::string> subtask;
  std::optional<int64_t> ctx_len;   // nominal
  std::optional<double> depth_pct;  // nominal
  std::optional<std::string> cluster;
  std::optional<int64_t> seed;
};

struct Sample : SampleKey {
  std::optional<double> depth_real;        // percent reached
  std::optional<int64_t> needle_tok;       // index of the needle's first token in the prompt
  std::optional<int64_t> needle_tokens;    // its length
  std::optional<int64_t> needle_distance;  // tokens between its last one and the question's first
  std::vector<engine::Request> requests;   // ≥ 1
  std::vector<std::string> targets;        // what a right answer holds; for `show` and rescoring
  std::string prompt_sha256;               // of the first request's context text
  std::string ids_sha256;                  // of its ids, int32 little-endian
  int64_t prompt_tokens = 0;               // of the first request
  std::optional<int64_t> kept_tokens;      // of the document, when it was cut
  int64_t max_new_tokens = 0;              // 0: nothing is generated
  std::string recipe_json;                 // canonical JSON: enough to make the prompt again
  bool truncated = false;                  // the prompt was cut to fit
  std::optional<std::string> prompt_text;  // when it is short enough to be stored (16 KiB)
};

enum class Status { ok, failed, skipped };

struct MetricValue {
  std::string metric;
  std::optional<double> value;  // empty: could not be judged
  std::string filter = "none";
  std::optional<double> weight = {};
};

struct ChoiceValue {
  std::optional<double> logprob;
  std::optional<int64_t> n_tokens, n_chars, n_bytes;
  std::optional<double> uncond_logprob, ctx_nll;
  std::optional<int64_t> ctx_tokens;
  std::string ids_sha256;
  std::optional<bool> greedy;
  bool gold = false;
};

struct SampleScore {
  Status status = Status::ok;
  std::optional<double> score;  // the primary metric; empty unless status is ok
  std::vector<MetricValue> metrics;
  std::vector<ChoiceValue> choices;
  std::string answer;  // what was judged, shortened for people
  std::string error;   // why it failed or was skipped
};

// A scored sample as fold() needs it, whether fresh or read back from a store.
struct FoldRow {
  SampleKey key;
  Status status = Status::ok;
  std::optional<double> score;
  std::vector<MetricValue> metrics;
};

// value is empty when no sample counts (n = 0): never a 0 in its place. n is the number of samples with status ok that
// have a value.
struct Aggregate {
  std::string slice;  // "" for all, else "ctx_len=4096;depth_pct=50": keys sorted
  std::string metric;
  std::string filter = "none";
  std::optional<double> value;
  int64_t n = 0;
  std::optional<double> stderr_value, ci_low, ci_high;  // 95 %
  std::string ci_method;  // "wilson", "bca-b10000-splitmix64-seed0", …; "" without an interval
};

// One line of `--dry-run`: nothing is tokenized for it.
struct PlanRow {
  std::optional<std::string> subtask;
  std::optional<int64_t> ctx_len;
  int64_t n_samples = 0;
  int64_t prompt_tokens = 0;  // of all these samples, at most
  int64_t new_tokens = 0;     // at most
};

class Task {
 public:
  virtual ~Task() = default;
  virtual const TaskInfo& info() const = 0;

  // Size of the whole plan after `limit`, before sharding. Shard s of n takes the indices i with i mod n = s.
  virtual int64_t n_samples() const = 0;
  virtual SampleKey key(int64_t index) const = 0;
  virtual std::vector<PlanRow> plan() const = 0;

  // Depends on the index and on what the task was made from only. May be called from several threads at once.
  virtual Sample sample(int64_t index) const = 0;

  // Sample `index` as one JSON object in the benchmark's own file format, for comparison with its authors' files; ""
  // when it has none.
  virtual std::string upstream_row(int64_t /*index*/) const { return {}; }

  // `answers` in the order of sample.requests, one each. A Failure makes the sample failed, never a 0. Only targets and
  // the key of `sample` are used, so that stored answers can be scored again.
  virtual SampleScore score(const Sample& sample, std::span<const engine::Answer> answers) const = 0;

  // A sample's score again from what a store keeps of it: its options' sums, or the text that was generated. Nothing
  // when that is not enough.
  virtual std::optional<SampleScore> rescore(const SampleKey& /*key*/, std::span<const ChoiceValue> /*choices*/,
                                             const std::string& /*response*/) const {
    return std::nullopt;
  }

  // Sorted by slice, metric, filter.
  virtual std::vector<Aggregate> fold(std::span<const FoldRow> rows) const = 0;
};

// ---- The registry --------------------------------------------------------------------------------------------------

using TaskMaker = std::unique_ptr<Task> (*)(const std::string& name, const TaskOptions& options,
                                            const TextContext& text);
// Members' aggregates, by name, to the group's own.
using GroupFold = std::vector<Aggregate> (*)(const std::map<std::string, std::vector<Aggregate>>& members);

struct TaskEntry {
  std::string name, family, kind, summary;
  std::vector<std::string> members = {};  // kind "group": what it stands for
  std::vector<OptionDef> options = {};
  TaskMaker make = nullptr;        // null for a group
  GroupFold fold_group = nullptr;  // null: a group that only stands for its members
  // Of a group with aggregates of its own.
  std::string version = {}, protocol = {}, primary_metric = {};
  std::vector<MetricDef> metrics = {};
};

const std::vector<TaskEntry>& task_table();
// Throws: usage with the nearest names.
const TaskEntry& find_task(std::string_view name);
// Groups replaced by their members, duplicates dropped, order kept. Throws: usage with the nearest names.
std::vector<std::string> expand_tasks(std::span<const std::string> names);
// Throws: usage (unknown key, length too small, …) and not_found or corrupt for data, before anything is run.
std::unique_ptr<Task> make_task(std::string_view name, const TaskOptions& options, const TextContext& text);

// Up to three names within reach of a typing mistake, nearest first (edit distance with transpositions).
std::vector<std::string> nearest_names(std::string_view wrong, std::span<const std::string> names);

}  // namespace hayfork::tasks
