// One walk over an agenda: admits nodes of the trie depth first as memory allows, mixes rows of prefill and decode into
// passes, and hands results on. Every choice made here (what runs when, with whom, in which pieces) changes time and
// memory only: a row's bits depend on its own sequence alone.
#pragma once

#include <cstdint>
#include <deque>
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
#include "engine/pass_runner.h"

namespace hayfork::engine {

// What a run works with; borrowed.
struct RunTools {
  Model& model;
  Context& context;
  Cache& cache;
  const Tokenizer* tokenizer;  // may be null
  EngineStats& stats;
  PassRunner* runner = nullptr;  // where passes can be queued, else null
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
    // The last pass built.
    int32_t pass_seq = -1, n_rows_base = 0, n_rows_output = 0;
    int32_t slot = -1;                                    // of a decode row
    int32_t n_ahead = 0;                                  // decode rows whose results are still to come: at most one
    std::optional<std::pair<int32_t, int32_t>> bad_base;  // first position that is not finite, and its layer
  };
  using LanePtr = std::shared_ptr<Lane>;  // passes in flight keep lanes that have ended
  // One wanted row of the pass; its events are next to each other. Decode rows have none.
  struct Query {
    Lane* lane;
    int32_t row;
    size_t first_event, last_event;
    size_t first_target = 0, n_targets = 0;  // in targets_
    bool wants_logits = false;
    int32_t bad_layer = -1;
  };
  // What to do with a pass's results. Where passes are queued, those of one are read while the next one runs; its rows
  // are chosen before that: a generation that turns out to have ended has had one row too many, which is not used.
  struct Flight {
    std::vector<Row> rows;
    std::vector<LanePtr> lanes;   // by sequence of the pass
    std::vector<int32_t> n_rows;  // likewise
    std::vector<Query> queries;   // by slot
    std::vector<int32_t> targets;
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
  void add_decode_rows(const LanePtr& lane);
  void add_prefill_rows(const LanePtr& lane);
  int32_t begin_rows(const LanePtr& lane, const SeqView& view);
  int32_t adopt_blocks(Lane& lane, int32_t pos, bool& pause);
  void keep_blocks(const Lane& lane);
  void add_query(Lane& lane, int32_t row, size_t first_event, size_t last_event);
  void collect_targets(Query& query);
  template <class F>
  bool fits(F&& work);
  bool compute();
  bool compute_here();
  bool submit();
  bool run_head(const Matrix& hidden);
  void note_bad_rows(Flight& flight, const std::vector<int32_t>& nonfinite_layer);
  void account_rows();
  void account_time(const Flight& flight, double ms);

  // Results.
  void collect();
  void settle();
  void dispatch(const Flight& flight, const Query& query, const HeadResult& result, const float* logits);
  void dispatch_event(const Flight& flight, const Query& query, const HeadResult& result, const float* logits,
                      const Event& event);
  void first_token(int32_t generation, const HeadResult& result, const float* logits, int32_t position);
  Choice choose(const Generation& generation, const HeadResult& result, const float* logits, int32_t position) const;
  void end_lanes(const Flight& flight);
  void advance(Lane& lane);
  void poison(Lane& lane);
  void fail_below(int32_t node, const Failure& failure);
  bool waits_for_token(int32_t child) const;
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
  const bool windowed_;     // the cache frees blocks behind windows
  BlockStore kept_blocks_;  // each takes one of every kind from the budget
  // Where most rows are taken over (a sweep of needle depths): as many blocks, kept or to be kept, come before another
  // sequence beside those that run. Else 0: they give way.
  const int32_t guarded_blocks_;
  std::vector<NodeState> states_;
  std::vector<std::unique_ptr<Generation>> generations_;
  std::vector<int32_t> open_;  // nodes with children to start; the last one first
  std::vector<LanePtr> lanes_;
  bool may_admit_ = true;  // something has changed since the last refusal
  bool had_room_ = true;   // for prefill rows, when last asked
  bool draining_ = false;
  std::vector<char> wanted_;  // by node, while draining: to be finished all the same

  PassBuilder rows_;
  int64_t prefill_rows_ = 0;
  Flight now_;                  // the pass being built
  std::deque<Flight> flights_;  // queued, the oldest first
  std::vector<float> logits_;   // of the queries in the head that want them, one after another
};

}  // namespace hayfork::engine
