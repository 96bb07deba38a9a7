// What Run does with the results of a pass.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/run.h"

namespace hayfork::engine {
namespace {

Failure not_finite(int32_t layer, int32_t position) {
  const std::string where = layer < 0 ? "the logits" : fmt::format("layer {}", layer);
  return {ErrorCode::corrupt, fmt::format("{} gave a value that is not finite at position {}", where, position)};
}

}  // namespace

// Waits for the oldest pass in flight.
void Run::collect() {
  Flight flight = std::move(flights_.front());
  flights_.pop_front();
  const PassResults results = tools_.runner->collect();
  account_time(flight, results.ms);
  note_bad_rows(flight, results.nonfinite_layer);
  for (size_t q = 0; q < flight.queries.size(); ++q) dispatch(flight, flight.queries[q], results.heads[q], nullptr);
  end_lanes(flight);
  std::erase_if(lanes_, [](const LanePtr& lane) { return lane->finished; });
  may_admit_ = true;
}

void Run::settle() {
  while (!flights_.empty()) collect();
}

void Run::dispatch(const Flight& flight, const Query& query, const HeadResult& result, const float* logits) {
  Lane& lane = *query.lane;
  const bool below_bad = lane.bad_base && query.row >= lane.bad_base->first;
  if (!in_prefill(lane)) {
    --lane.n_ahead;
    if (lane.finished) return;  // a row too many
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
      dispatch_event(flight, query, result, logits, event);
    }
  }
}

void Run::dispatch_event(const Flight& flight, const Query& query, const HeadResult& result, const float* logits,
                         const Event& event) {
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
      const auto begin = flight.targets.begin() + static_cast<std::ptrdiff_t>(query.first_target);
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

// Generations that have ended give their memory back, sequences that went bad are given up.
void Run::end_lanes(const Flight& flight) {
  for (const LanePtr& lane : flight.lanes) {
    if (in_prefill(*lane)) {
      if (lane->bad_base) poison(*lane);
    } else if (lane->finished && lane->seq >= 0) {
      tools_.cache.release(std::exchange(lane->seq, -1));
      finish(lane->node);
    }
  }
}

// Behind a pass: positions move on, nodes that are complete open their children.
void Run::advance(Lane& lane) {
  if (!in_prefill(lane)) {
    ++lane.pos;
    return;
  }
  prefill_rows_ -= lane.next_pos - lane.pos;
  if (!lane.bad_base) keep_blocks(lane);
  lane.pos = lane.next_pos;
  if (!lane.bad_base && lane.pos == node(lane.node).end) {
    lane.finished = true;
    open_children(lane.node, std::exchange(lane.seq, -1));
  }
}

// A base row is not finite, and every later row of the sequence reads it: requests that want one of them fail. Rows
// below that are computed already, or soon, are of requests that have failed.
void Run::poison(Lane& lane) {
  const auto [position, layer] = *lane.bad_base;
  const Failure failure = not_finite(layer, position);
  for (const Event& event : lane.events) {
    if (event.row >= position) answers_.fail(part(event.part).job, failure);
  }
  for (int32_t c = node(lane.node).first_child; c >= 0; c = node(c).next_sibling) fail_below(c, failure);
  if (lane.finished) return;
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
