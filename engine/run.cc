#include "engine/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace hayfork::engine {
namespace {

// Tokens that a soft stop still waits for: an answer nearly done is kept, a long one is given up (and made again by
// whoever resumes).
constexpr int32_t kDrainTokens = 64;

// Nodes shorter than this are computed without looking for blocks to take over: hashing their reach would cost more.
constexpr int32_t kLocalTokens = kBlockTokens;

Failure not_finite(int32_t layer, int32_t position) {
  const std::string where = layer < 0 ? "the logits" : fmt::format("layer {}", layer);
  return {ErrorCode::corrupt, fmt::format("{} gave a value that is not finite at position {}", where, position)};
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
      kept_blocks_(tools.cache),
      states_(static_cast<size_t>(agenda.trie().size())),
      generations_(agenda.generations().size()) {
  for (int32_t id = agenda.trie().size(); id-- > 0;) {
    if (node(id).parent < 0) open_children(id, -1);
  }
}

Run::~Run() {
  for (const Lane& lane : lanes_) {
    if (lane.seq >= 0) tools_.cache.release(lane.seq);
  }
  for (const NodeState& s : states_) {
    if (s.seq >= 0) tools_.cache.release(s.seq);
  }
}

Outcome Run::go(const StopFlag& stop) {
  for (;;) {
    if (stop.hard()) return Outcome::stopped;
    if (stop.soft() && !draining_) begin_drain();
    if (const bool room = prefill_rows_ < chunk_; room != std::exchange(had_room_, room) && room) may_admit_ = true;
    while (may_admit_ && lanes_.size() < batch_size_) may_admit_ = admit();
    if (lanes_.empty()) {
      HAY_CHECK(open_.empty(), "nodes are left that nothing was reserved for");
      return draining_ ? Outcome::stopped : Outcome::finished;
    }
    if (!run_pass()) return Outcome::out_of_memory;
  }
}

std::vector<int32_t> Run::jobs_in_flight() const {
  std::vector<int32_t> jobs;
  for (const Lane& lane : lanes_) {
    for (const Event& event : lane.events) jobs.push_back(part(event.part).job);
    jobs.push_back(node(lane.node).owner);
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
  if (!fits(kept_blocks_.size())) return false;
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
  Lane lane;
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
  lanes_.push_back(std::move(lane));
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
  for (Lane& lane : lanes_) {
    lane.finished = wanted_[static_cast<size_t>(lane.node)] == 0;
    if (lane.finished && in_prefill(lane)) prefill_rows_ -= node(lane.node).end - lane.pos;
  }
  std::vector<Lane> dropped;
  const auto kept_end = std::stable_partition(lanes_.begin(), lanes_.end(), [](const Lane& l) { return !l.finished; });
  dropped.assign(std::make_move_iterator(kept_end), std::make_move_iterator(lanes_.end()));
  lanes_.erase(kept_end, lanes_.end());
  for (const Lane& lane : dropped) {
    tools_.cache.release(lane.seq);
    finish(lane.node);
  }
}

// ---- results

void Run::dispatch(const Query& query, const HeadResult& result, const float* logits) {
  Lane& lane = lanes_[query.lane];
  const bool below_bad = lane.bad_base && query.row >= lane.bad_base->first;
  if (!in_prefill(lane)) {
    const int32_t generation = node(lane.node).leaf;
    if (below_bad || query.bad_layer >= 0 || !result.finite) {
      const int32_t layer = below_bad ? lane.bad_base->second : query.bad_layer;
      lane.finished = true;
      answers_.fail_generation(generation, not_finite(layer, query.row));
    } else if (lane.generation->push(choose(*lane.generation, result, logits, query.row + 1))) {
      lane.finished = true;
      answers_.generated(generation, lane.generation->take());
    }
    return;
  }
  if (below_bad) return;  // poison() tells everyone concerned
  for (size_t e = query.first_event; e < query.last_event; ++e) {
    const Event& event = lane.events[e];
    if (query.bad_layer >= 0 || !result.finite) {
      answers_.fail(part(event.part).job, not_finite(query.bad_layer, query.row));
    } else {
      dispatch_event(query, result, logits, event);
    }
  }
}

void Run::dispatch_event(const Query& query, const HeadResult& result, const float* logits, const Event& event) {
  const Part& p = part(event.part);
  switch (p.kind) {
    case PartKind::next_token:
      first_token(p.index, result, logits, query.row);
      break;
    case PartKind::logits:
      answers_.logits(p, event.result, logits);
      break;
    case PartKind::continuation:
    case PartKind::context:
    case PartKind::nll: {
      const int32_t target = p.target(event.result);
      const auto begin = targets_.begin() + static_cast<std::ptrdiff_t>(query.first_target);
      const auto end = begin + static_cast<std::ptrdiff_t>(query.n_targets);
      const auto at = static_cast<size_t>(std::lower_bound(begin, end, target) - begin);
      answers_.log_probability(p, event.result, result.target_logprobs.at(at), result.argmax == target);
    }
  }
}

Choice Run::choose(const Generation& generation, const HeadResult& result, const float* logits,
                   int32_t position) const {
  const Sampling& sampling = generation.request().sampling;
  if (sampling.temperature == 0) return {result.argmax, result.argmax_logprob};
  return sample(std::span(logits, vocab_size_), sampling, position);
}

// Chosen from the prompt's last row, before the generation has a sequence of its own.
void Run::first_token(int32_t id, const HeadResult& result, const float* logits, int32_t position) {
  const int32_t job = agenda_.generations()[static_cast<size_t>(id)].jobs.front();
  if (answers_.done(job)) return;
  answers_.set_started(job);
  const auto* request = std::get<const GenerateRequest*>(agenda_.jobs()[static_cast<size_t>(job)].work);
  auto& generation = generations_[static_cast<size_t>(id)];
  generation = std::make_unique<Generation>(*request, tools_.tokenizer, tools_.model.info().eos_ids);
  if (generation->push(choose(*generation, result, logits, position + 1))) {
    answers_.generated(id, generation->take());
  }
}

// After a pass: positions move on, nodes that are complete open their children.
void Run::advance(Lane& lane) {
  if (!in_prefill(lane)) {
    ++lane.pos;
    if (lane.finished) {
      tools_.cache.release(std::exchange(lane.seq, -1));
      finish(lane.node);
    }
    return;
  }
  prefill_rows_ -= lane.next_pos - lane.pos;
  if (!lane.bad_base) keep_blocks(lane);
  lane.pos = lane.next_pos;
  if (lane.bad_base) {
    poison(lane);
  } else if (lane.pos == node(lane.node).end) {
    lane.finished = true;
    open_children(lane.node, std::exchange(lane.seq, -1));
  }
}

// A base row is not finite, and every later row of the sequence reads it: requests that want one of them fail.
void Run::poison(Lane& lane) {
  const auto [position, layer] = *lane.bad_base;
  const Failure failure = not_finite(layer, position);
  for (const Event& event : lane.events) {
    if (event.row >= position) answers_.fail(part(event.part).job, failure);
  }
  for (int32_t c = node(lane.node).first_child; c >= 0; c = node(c).next_sibling) fail_below(c, failure);
  prefill_rows_ -= node(lane.node).end - lane.pos;
  lane.finished = true;
  tools_.cache.release(std::exchange(lane.seq, -1));
  finish(lane.node);
}

void Run::fail_below(int32_t top, const Failure& failure) {
  std::vector<int32_t> stack{top};
  while (!stack.empty()) {
    const int32_t id = stack.back();
    stack.pop_back();
    if (node(id).leaf >= 0) answers_.fail_generation(node(id).leaf, failure);
    for (const Want& want : agenda_.wants(id)) answers_.fail(part(want.part).job, failure);
    for (int32_t c = node(id).first_child; c >= 0; c = node(c).next_sibling) stack.push_back(c);
  }
}

}  // namespace hayfork::engine
