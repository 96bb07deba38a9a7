#include "engine/run.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace hayfork::engine {
namespace {

// Tokens that a soft stop still waits for: an answer nearly done is kept, a long one is given up (and made again by
// whoever resumes).
constexpr int32_t kDrainTokens = 64;

// What is planned for kept blocks, where at least half of the rows are taken over.
int32_t guarded_blocks(const Agenda& agenda, const MemoryPlan& plan, bool two_streams) {
  if (plan.kept_blocks == 0) return 0;
  return 2 * rows_taken_over(agenda, plan.reach_tokens, two_streams) < agenda.base_rows() ? 0 : plan.kept_blocks;
}

}  // namespace

Run::Run(RunTools tools, const Agenda& agenda, const CacheNeeds& needs, const MemoryPlan& plan, Answers& answers)
    : tools_(tools),
      agenda_(agenda),
      needs_(needs),
      answers_(answers),
      chunk_(plan.chunk),
      batch_size_(static_cast<size_t>(plan.batch_size)),
      two_streams_(tools.model.two_streams()),
      vocab_size_(static_cast<size_t>(tools.model.info().vocab_size)),
      budget_(plan.amounts),
      reach_tokens_(plan.reach_tokens),
      windowed_(tools.cache.windowed()),
      kept_blocks_(tools.cache),
      guarded_blocks_(guarded_blocks(agenda, plan, two_streams_)),
      states_(static_cast<size_t>(agenda.trie().size())),
      generations_(agenda.generations().size()) {
  for (int32_t id = agenda.trie().size(); id-- > 0;) {
    if (node(id).parent < 0) open_children(id, -1);
  }
}

Run::~Run() {
  if (tools_.runner != nullptr) tools_.runner->drop();
  for (const LanePtr& lane : lanes_) {
    if (lane->seq >= 0) tools_.cache.release(lane->seq);
  }
  for (const NodeState& s : states_) {
    if (s.seq >= 0) tools_.cache.release(s.seq);
  }
}

Outcome Run::go(const StopFlag& stop) {
  for (;;) {
    if (stop.hard()) return Outcome::stopped;
    if (stop.soft() && !draining_) {
      settle();
      begin_drain();
    }
    if (const bool room = prefill_rows_ < chunk_; room != std::exchange(had_room_, room) && room) may_admit_ = true;
    if (lanes_.empty()) may_admit_ = true;  // what is guarded beside running sequences is not guarded now
    while (may_admit_ && lanes_.size() < batch_size_) may_admit_ = admit();
    if (lanes_.empty() && !flights_.empty()) {
      collect();
      continue;
    }
    if (lanes_.empty()) {
      HAY_CHECK(open_.empty(), "nodes are left that nothing was reserved for");
      return draining_ ? Outcome::stopped : Outcome::finished;
    }
    if (!run_pass()) return Outcome::out_of_memory;
  }
}

std::vector<int32_t> Run::jobs_in_flight() const {
  std::vector<int32_t> jobs;
  const auto add = [&](const Lane& lane) {
    for (const Event& event : lane.events) jobs.push_back(part(event.part).job);
    jobs.push_back(node(lane.node).owner);
  };
  for (const LanePtr& lane : lanes_) add(*lane);
  for (const Flight& flight : flights_) {
    for (const LanePtr& lane : flight.lanes) add(*lane);
  }
  return jobs;
}

// ---- admission

// Starts one child of the innermost node that has one and finds memory for it. False when there is none.
bool Run::admit() {
  for (size_t i = open_.size(); i-- > 0;) {
    const int32_t parent = open_[i];
    if (skip_children(parent)) {
      open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
      close(parent);
      return true;  // something may have become free: look again from the top
    }
    const int32_t child = state(parent).next_child;
    if (node(child).leaf < 0 && prefill_rows_ >= chunk_) continue;  // the pass is full of prefill rows already
    if (waits_for_token(child)) continue;
    if (!reserve(parent, child)) continue;
    start(parent);
    if (state(parent).next_child < 0) {
      open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
      close(parent);
    }
    return true;
  }
  return false;
}

// Its first token is in a pass whose results are still to come.
bool Run::waits_for_token(int32_t child) const {
  return !flights_.empty() && node(child).leaf >= 0 && generations_[static_cast<size_t>(node(child).leaf)] == nullptr;
}

// Passes over children that need not start. True when none is left.
bool Run::skip_children(int32_t id) {
  NodeState& s = state(id);
  while (s.next_child >= 0) {
    const TrieNode& child = node(s.next_child);
    const bool answered =
        child.leaf >= 0 && answers_.done(agenda_.generations()[static_cast<size_t>(child.leaf)].jobs.front());
    const bool dropped = draining_ && wanted_[static_cast<size_t>(s.next_child)] == 0;
    if (!answered && !dropped) return false;
    s.next_child = child.next_sibling;
    --s.unfinished;
  }
  return true;
}

bool Run::reserve(int32_t parent, int32_t child) {
  if (state(parent).reserve_free) {
    state(parent).reserve_free = false;
    state(child).uses_parents_reserve = true;
    return true;
  }
  const std::span<const int32_t> need = needs_.tree(child);
  const auto fits = [&](int32_t more) {
    return std::equal(need.begin(), need.end(), budget_.begin(), [&](int32_t n, int32_t b) { return n <= b + more; });
  };
  if (!fits(kept_blocks_.size() - (lanes_.empty() ? 0 : guarded_blocks_))) return false;
  while (!fits(0)) {
    kept_blocks_.evict();
    for (int32_t& amount : budget_) ++amount;
  }
  for (size_t k = 0; k < budget_.size(); ++k) budget_[k] -= need[k];
  return true;
}

// The last child to start takes its parent's sequence over; the others fork it.
void Run::start(int32_t parent) {
  NodeState& p = state(parent);
  const int32_t id = p.next_child;
  p.next_child = node(id).next_sibling;
  state(id).running = true;
  const auto started = std::make_shared<Lane>();
  Lane& lane = *started;
  lane.node = id;
  lane.pos = node(id).begin;
  if (p.seq < 0) {
    lane.seq = tools_.cache.create();
  } else if (p.next_child < 0) {
    lane.seq = std::exchange(p.seq, -1);
  } else {
    lane.seq = tools_.cache.fork(p.seq, lane.pos);
  }
  if (node(id).leaf >= 0) {
    lane.generation = generations_[static_cast<size_t>(node(id).leaf)].get();
    HAY_CHECK(lane.generation != nullptr);
  } else {
    lane.events = events_of(id);
    if (reach_tokens_ > 0 && node(id).length() >= kLocalTokens) lane.keys = {agenda_.trie(), id, reach_tokens_};
    prefill_rows_ += node(id).length();
  }
  lanes_.push_back(started);
}

// No child is left to start.
void Run::close(int32_t id) {
  NodeState& s = state(id);
  if (s.seq >= 0) tools_.cache.release(std::exchange(s.seq, -1));
  if (s.unfinished == 0) finish(id);
}

// Everything below the node is done: what was reserved for it is free again.
void Run::finish(int32_t id) {
  while (node(id).parent >= 0) {
    may_admit_ = true;
    const int32_t parent = node(id).parent;
    state(id).running = false;
    if (state(id).uses_parents_reserve) {
      state(parent).reserve_free = true;
    } else {
      give_back(id);
    }
    if (--state(parent).unfinished > 0) {
      if (state(parent).next_child < 0 && state(parent).reserve_free) lend_reserve(parent);
      return;
    }
    id = parent;
  }
}

void Run::give_back(int32_t id) {
  const std::span<const int32_t> need = needs_.tree(id);
  for (size_t k = 0; k < budget_.size(); ++k) budget_[k] += need[k];
}

// What was reserved for the children of a node, of which none is left to start, serves one that took memory of its own.
void Run::lend_reserve(int32_t parent) {
  for (int32_t c = node(parent).first_child; c >= 0; c = node(c).next_sibling) {
    if (!state(c).running || state(c).uses_parents_reserve) continue;
    give_back(c);
    state(c).uses_parents_reserve = true;
    state(parent).reserve_free = false;
    return;
  }
}

// The node's rows are computed: its children may follow.
void Run::open_children(int32_t id, SeqId seq) {
  NodeState& s = state(id);
  s.seq = seq;
  s.next_child = node(id).first_child;
  s.unfinished = node(id).n_children;
  s.reserve_free = node(id).parent >= 0;
  may_admit_ = true;
  if (s.next_child < 0) {
    close(id);
  } else {
    open_.push_back(id);
  }
}

std::vector<Run::Event> Run::events_of(int32_t id) const {
  std::vector<Event> events;
  for (const Want& want : agenda_.wants(id)) {
    const Part& p = part(want.part);
    if (answers_.done(p.job)) continue;
    for (int32_t r = want.first; r < want.last; ++r) events.push_back({p.row(r), want.part, r});
  }
  const auto by_row = [](const Event& a, const Event& b) { return a.row < b.row; };
  if (!std::is_sorted(events.begin(), events.end(), by_row)) {
    std::stable_sort(events.begin(), events.end(), by_row);
  }
  return events;
}

// A soft stop: requests that have begun are finished, except long generations; nothing else is started.
void Run::begin_drain() {
  draining_ = true;
  may_admit_ = true;
  for (const int32_t job : jobs_in_flight()) answers_.set_started(job);
  wanted_.assign(states_.size(), 0);
  const auto keep = [&](int32_t id) {
    for (; id >= 0 && wanted_[static_cast<size_t>(id)] == 0; id = node(id).parent) wanted_[static_cast<size_t>(id)] = 1;
  };
  for (const Part& p : agenda_.parts()) {
    if (answers_.started(p.job) && !answers_.done(p.job) && p.kind != PartKind::next_token) keep(p.node);
  }
  for (size_t g = 0; g < generations_.size(); ++g) {
    const Generation* generation = generations_[g].get();
    if (generation != nullptr && !generation->done() &&
        generation->request().max_new_tokens - generation->n_ids() <= kDrainTokens) {
      keep(agenda_.generations()[g].node);
    }
  }
  std::vector<LanePtr> dropped;
  std::erase_if(lanes_, [&](const LanePtr& lane) {
    if (wanted_[static_cast<size_t>(lane->node)] != 0) return false;
    if (in_prefill(*lane)) prefill_rows_ -= node(lane->node).end - lane->pos;
    dropped.push_back(lane);
    return true;
  });
  for (const LanePtr& lane : dropped) {
    tools_.cache.release(std::exchange(lane->seq, -1));
    finish(lane->node);
  }
}

}  // namespace hayfork::engine
