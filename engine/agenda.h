// What a list of requests needs computed: the requests checked, their tokens sorted into a trie, and for every trie
// node the rows whose results somebody wants. Made before anything runs; the scheduler walks it, plan() only counts it.
// Knows no cache and no model but through AgendaLimits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "engine/lm.h"
#include "engine/request_trie.h"

namespace hayfork::engine {

// The engine's own fourth request, for probes: whole rows of logits.
struct LogitsRequest {
  std::span<const int32_t> tokens;
  bool all_rows = false;
  std::function<void(int32_t position, const float* logits)> sink;
};
using Work = std::variant<const ScoreRequest*, const NllRequest*, const GenerateRequest*, const LogitsRequest*>;

struct AgendaLimits {
  int32_t vocab_size = 0;
  int32_t max_length = 0;  // 0: none
  bool has_tokenizer = false;
  bool prefix_reuse = true;
  Order order = Order::planned;
  uint64_t order_seed = 0;
  std::function<int32_t(int32_t)> rope_class;  // Model::rope_class
};

enum class PartKind : uint8_t { continuation, context, nll, next_token, logits };

// A list of results of one request: result i comes from row(i) and, except for next_token and logits, is the
// log-probability of target(i) there. Rows ascend.
struct Part {
  int32_t job = 0;
  PartKind kind = PartKind::nll;
  int32_t index = 0;                   // which continuation; which generation
  int32_t node = 0;                    // the trie node at whose end the part's last row is, or a later one below it
  int32_t first_row = 0, n = 0;        // without `positions`: rows first_row … first_row + n − 1
  const int32_t* targets = nullptr;    // of result i at [i], with `positions` at [positions[i]]
  const int32_t* positions = nullptr;  // rows are one less

  int32_t row(int32_t i) const { return positions != nullptr ? positions[i] - 1 : first_row + i; }
  int32_t target(int32_t i) const { return targets == nullptr ? -1 : targets[positions != nullptr ? positions[i] : i]; }
};

// Results [first, last) of a part come from rows of one node.
struct Want {
  int32_t part, first, last;
};

struct Job {
  Work work;
  size_t index = 0;         // in the caller's list
  int32_t rope_tokens = 0;  // planned total
  int32_t first_part = 0, n_parts = 0;
  int64_t n_results = 0;
  int64_t n_tokens = 0;     // prefill rows it would take alone; with reuse its own context counts once
  int32_t generation = -1;  // index into generations()
};

// Equal generations are run once; the others get copies of the answer.
struct GenerationPlan {
  int32_t node = 0;  // the leaf that holds its positions
  std::vector<int32_t> jobs;
};

class Agenda {
 public:
  // `subset` says which of `works` to take (indices). The requests must outlive the agenda.
  Agenda(std::span<const Work> works, std::span<const size_t> subset, AgendaLimits limits);

  const RequestTrie& trie() const { return trie_; }
  const std::vector<Job>& jobs() const { return jobs_; }
  const std::vector<Part>& parts() const { return parts_; }
  const std::vector<GenerationPlan>& generations() const { return generations_; }
  std::span<const Want> wants(int32_t node) const {
    const auto n = static_cast<size_t>(node);
    return std::span(wants_).subspan(want_begin_[n], want_begin_[n + 1] - want_begin_[n]);
  }
  int32_t rope_tokens(int32_t node) const { return jobs_[static_cast<size_t>(trie_.node(node).owner)].rope_tokens; }
  // Requests that can't be asked: index in the caller's list and why.
  const std::vector<std::pair<size_t, Failure>>& refused() const { return refused_; }

  // Counts for plans: base rows, distinct wanted rows, and tokens of all requests taken alone.
  int64_t base_rows() const;
  int64_t wanted_rows() const;
  std::vector<int32_t> wanted_rows(int32_t node) const;  // positions, ascending, each once
  int64_t request_tokens() const;
  int64_t new_tokens() const;

 private:
  std::optional<std::string> fault(const Work& work) const;
  std::vector<size_t> ordered(std::span<const Work> works, std::span<const size_t> subset) const;
  int32_t root(int32_t owner, int32_t rope_tokens);
  void add(const Work& work, size_t index);
  void add_score(int32_t owner, const ScoreRequest& request);
  void add_nll(int32_t owner, const NllRequest& request);
  void add_generate(int32_t owner, const GenerateRequest& request);
  void add_logits(int32_t owner, const LogitsRequest& request);
  int32_t find_generation(int32_t node, const GenerateRequest& request) const;
  void place_wants();

  AgendaLimits limits_;
  RequestTrie trie_;
  std::vector<std::pair<int32_t, int32_t>> roots_;  // rope class, node
  std::vector<Job> jobs_;
  std::vector<Part> parts_;
  std::vector<GenerationPlan> generations_;
  std::unordered_multimap<uint64_t, int32_t> equal_generations_;  // digest of node and settings → generation
  std::vector<Want> wants_;                                       // grouped by node
  std::vector<size_t> want_begin_;
  std::vector<std::pair<size_t, Failure>> refused_;
};

}  // namespace hayfork::engine
