// One walk over an agenda: admits nodes of the trie depth first as memory allows, mixes rows of prefill and decode into
// passes, and hands results on. Every choice made here (what runs when, with whom, in which pieces) changes time and
// memory only: a row's bits depend on its own sequence alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/stop.h"
#include "engine/agenda.h"
#include "engine/answers.h"
#include "engine/block_store.h"
#include "engine/cache.h"
#include "engine/context.h"
#include "engine/engine.h"
#include "engine/generation.h"
#include "engine/memory_plan.h"
#include "engine/model.h"
#include "engine/pass_builder.h"

namespace hayfork::engine {

// What a run works with; borrowed.
struct RunTools {
  Model& model;
  Context& context;
  Cache& cache;
  const Tokenizer* tokenizer;  // may be null
  EngineStats& stats;
};

enum class Outcome { finished, stopped, out_of_memory };

class Run {
 public:
  Run(RunTools tools, const Agenda& agenda, const CacheNeeds& needs, const MemoryPlan& plan, Answers& answers);
  ~Run();  // gives every sequence back
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Outcome go(const StopFlag& stop);
  // Requests that rows were being computed for: what to give up when the smallest pass does not fit.
  std::vector<int32_t> jobs_in_flight() const;

 private:
  struct NodeState {
    SeqId seq = -1;  // held for children that have not started
    int32_t next_child = -1;
    int32_t unfinished = 0;     // children
    bool reserve_free = false;  // what was reserved for the children, one after another, is not in use
    bool uses_parents_reserve = false;
    bool running = false;  // it, or something below it
  };
  // A result that somebody wants from a row.
  struct Event {
    int32_t row, part, result;
  };
  // A sequence that grows: a node being prefilled, or a generation.
  struct Lane {
    int32_t node = 0;
    SeqId seq = -1;
    int32_t pos = 0;  // next position
    bool finished = false;
    int32_t next_pos = 0;       // after this pass
    std::vector<Event> events;  // by row
    size_t next_event = 0;
    BlockKeys keys;  // empty: no block of it is taken over or kept
    Generation* generation = nullptr;
    // This pass.
    int32_t pass_seq = -1, n_rows_base = 0, n_rows_output = 0;
    std::optional<std::pair<int32_t, int32_t>> bad_base;  // first position that is not finite, and its layer
  };
  // One wanted row of the pass; its events are next to each other. Decode rows have none.
  struct Query {
    size_t lane;
    int32_t row;
    size_t first_event, last_event;
    size_t first_target = 0, n_targets = 0;  // in targets_
    bool wants_logits = false;
    int32_t bad_layer = -1;
  };

  // Admission.
  bool admit();
  bool skip_children(int32_t node);
  bool reserve(int32_t parent, int32_t child);
  void start(int32_t parent);
  void close(int32_t node);
  void finish(int32_t node);
  void give_back(int32_t node);
  void lend_reserve(int32_t parent);
  void open_children(int32_t node, SeqId seq);
  std::vector<Event> events_of(int32_t node) const;
  void begin_drain();

  // A pass.
  bool run_pass();
  void build_pass();
  void add_decode_rows(size_t lane);
  void add_prefill_rows(size_t lane);
  int32_t adopt_blocks(Lane& lane, int32_t pos);
  void keep_blocks(const Lane& lane);
  void add_query(size_t lane, int32_t row, size_t first_event, size_t last_event);
  void collect_targets(Query& query);
  template <class F>
  bool fits(F&& work);
  bool compute();
  bool run_head(const Matrix& hidden);
  void note_bad_rows(const ForwardResult& forward);
  void account_rows();
  void account_time(double ms);
  void dispatch(const Query& query, const HeadResult& result, const float* logits);
  void dispatch_event(const Query& query, const HeadResult& result, const float* logits, const Event& event);
  void first_token(int32_t generation, const HeadResult& result, const float* logits, int32_t position);
  Choice choose(const Generation& generation, const HeadResult& result, const float* logits, int32_t position) const;
  void advance(Lane& lane);
  void poison(Lane& lane);
  void fail_below(int32_t node, const Failure& failure);
  bool in_prefill(const Lane& lane) const { return lane.generation == nullptr; }
  const TrieNode& node(int32_t id) const { return agenda_.trie().node(id); }
  NodeState& state(int32_t id) { return states_[static_cast<size_t>(id)]; }
  const Part& part(int32_t id) const { return agenda_.parts()[static_cast<size_t>(id)]; }

  RunTools tools_;
  const Agenda& agenda_;
  const CacheNeeds& needs_;
  Answers& answers_;
  const int32_t chunk_;
  const size_t batch_size_;
  const bool two_streams_;
  const size_t vocab_size_;
  std::vector<int32_t> budget_;  // by kind, what is not reserved
  const int64_t reach_tokens_;
  BlockStore kept_blocks_;  // each takes one of every kind from the budget
  std::vector<NodeState> states_;
  std::vector<std::unique_ptr<Generation>> generations_;
  std::vector<int32_t> open_;  // nodes with children to start; the last one first
  std::vector<Lane> lanes_;
  bool may_admit_ = true;  // something has changed since the last refusal
  bool had_room_ = true;   // for prefill rows, when last asked
  bool draining_ = false;
  std::vector<char> wanted_;  // by node, while draining: to be finished all the same

  PassBuilder rows_;
  int64_t prefill_rows_ = 0;
  std::vector<Query> queries_;
  std::vector<int32_t> targets_;
  std::vector<float> logits_;  // of the queries in the head that want them, one after another
};

}  // namespace hayfork::engine
