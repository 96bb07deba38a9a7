// What the report's pages ask of the database beside what the other verbs ask: rows joined for pages, over a read-only
// connection of their own. All errors are Store's.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runs/rows.h"

namespace hayfork::runs {

// What the samples of one length took.
struct PhaseRow {
  OptInt ctx_len;
  int64_t n = 0;
  OptReal prefill_ms, decode_ms;                 // sums over samples
  OptInt prompt_tokens, gen_tokens, batch_size;  // sums; the largest batch
};

struct GateListRow {
  std::string cand, base;  // run ids
  OptText baseline_name;
  std::string verdict;
  int64_t exit_code = 0;
  std::string made_at;
  int64_t n_rules = 0, n_worse = 0, n_better = 0;  // comparisons stored with it
};

// A run's primary metric of one task, and what the newest gate said of it.
struct TimelineRow {
  OptText series;
  std::string model;
  OptText arch;
  OptInt train_step, train_tokens;
  std::string created_at, run_id;
  OptText git_commit;
  std::string task, metric;
  bool higher_is_better = true;
  OptReal value, ci_low, ci_high;
  int64_t n = 0;
  OptText base_run;  // run id
  OptReal delta, p_adj;
  OptInt n_pairs;
  OptText verdict;
  int64_t run = 0;
};

// A loss of a model whose size and training are known: LongPPL, or loss_token of corpus_loss.
struct ScalingRow {
  std::string task;
  int64_t task_id = 0;
  OptText series, arch, arch_label;
  std::string model;
  OptInt n_params, train_tokens;  // without embeddings
  OptReal value, ci_low, ci_high;
  int64_t n = 0;  // documents
  std::string run_id;
};

struct KeyCount {
  int64_t n_documents = 0, n_few = 0;  // with key tokens known; with fewer than `few`
};

struct SearchListRow {
  int64_t id = 0;
  OptText run_id;
  std::string model, algo;
  int64_t seed = 0;
  std::string started_at;
  int64_t n_points = 0, n_front = 0;
};

struct SparseView {
  SparseRow row;
  std::vector<SparseLayerRow> layers;
};

class Connection;

class PageReader {
 public:
  explicit PageReader(const std::filesystem::path& database);  // Throws: as Store::open for reading
  ~PageReader();
  PageReader(const PageReader&) = delete;
  PageReader& operator=(const PageReader&) = delete;

  std::vector<PhaseRow> phases(int64_t run);             // by length
  std::vector<GateListRow> gates(int64_t limit);         // newest first
  std::vector<ComparisonRow> comparisons(int64_t cand);  // of the newest gate of that candidate
  // Primary metrics over all lengths, oldest first; by series (the model's name without one) and task.
  std::vector<TimelineRow> timeline();
  std::vector<BaselineRow> baseline_history();  // oldest first
  std::vector<ScalingRow> scaling();            // by task, architecture, size, training tokens
  KeyCount key_counts(int64_t few);
  std::vector<KeyTokensRow> key_sets(const std::string& doc_sha256);  // of one document
  std::vector<SearchListRow> searches();                              // newest first
  std::optional<SparseView> sparse(int64_t id);

 private:
  std::unique_ptr<Connection> db_;
};

}  // namespace hayfork::runs
