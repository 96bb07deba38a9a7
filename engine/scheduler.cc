#include "engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "engine/answers.h"
#include "engine/block_store.h"
#include "engine/run.h"

namespace hayfork::engine {
namespace {

constexpr int32_t kSmallestChunk = 16;  // passes are not made smaller than this when memory is short

Work work_of(const Request& request) {
  return std::visit([](const auto& r) { return Work(&r); }, request);
}

// Jobs that do not fit the budget by the path they take through the trie.
std::vector<char> too_large(const Agenda& agenda, const CacheNeeds& needs, std::span<const int64_t> bytes,
                            int64_t budget) {
  std::vector<char> result(agenda.jobs().size(), 0);
  for (const Part& part : agenda.parts()) {
    if (total_bytes(needs.path(part.node), bytes) > budget) result[static_cast<size_t>(part.job)] = 1;
  }
  for (const GenerationPlan& generation : agenda.generations()) {
    if (total_bytes(needs.path(generation.node), bytes) <= budget) continue;
    for (const int32_t job : generation.jobs) result[static_cast<size_t>(job)] = 1;
  }
  return result;
}

std::string why_too_large(std::span<const StateSpec> specs, DType kv_dtype, int64_t room, int32_t chunk) {
  const std::string memory = format_bytes(static_cast<double>(room));
  const int64_t state = Cache::bytes_per_state(specs);
  if (state > room) {
    return fmt::format(
        "the recurrent state of one sequence takes {}, more than the {} of memory left for it; use a machine with more "
        "memory",
        format_bytes(static_cast<double>(state)), memory);
  }
  return fmt::format(
      "the request needs more keys and values than {} of memory can hold: the longest that fits has {} tokens; shorten "
      "it, or use a smaller K/V type or a machine with more memory",
      memory, longest_that_fits(specs, kv_dtype, room, 1, chunk));
}

}  // namespace

// Works still to be answered, and how large their passes may be.
struct Scheduler::Round {
  std::span<const Work> works;
  std::vector<size_t> todo;    // indices of works
  std::vector<size_t> alone;   // those that fit only without sharing: for a round of their own
  std::vector<char> answered;  // by work
  bool prefix_reuse = true;
  MemoryLimits limits;
  const AnswerSink* sink = nullptr;

  void drop_answered() {
    std::erase_if(todo, [&](size_t i) { return answered[i] != 0; });
  }
  void emit(Answer answer) {
    answered[answer.index] = 1;
    (*sink)(std::move(answer));
  }
  // Takes jobs out that do not fit: to be tried alone, or failed if they were. True when there were any.
  bool set_aside(const Agenda& agenda, const std::vector<char>& large, const std::string& why);
};

bool Scheduler::Round::set_aside(const Agenda& agenda, const std::vector<char>& large, const std::string& why) {
  std::vector<char> out(works.size(), 0);
  for (size_t j = 0; j < large.size(); ++j) {
    if (large[j] == 0) continue;
    const size_t index = agenda.jobs()[j].index;
    out[index] = 1;
    if (prefix_reuse) {
      alone.push_back(index);
      continue;
    }
    emit({.index = index, .result = Failure{ErrorCode::resource, why}, .effort = {}});
  }
  return std::erase_if(todo, [&](size_t i) { return out[i] != 0; }) > 0;
}

Scheduler::Scheduler(Model& model, Context& context, const Tokenizer* tokenizer, SchedulerOptions options)
    : model_(model),
      context_(context),
      tokenizer_(tokenizer),
      options_(options),
      specs_(model.state_specs()),
      kind_bytes_(kind_bytes(specs_, options.memory.kv_dtype)) {
  stats_.peak_bytes = stats_.weight_bytes = model.weight_bytes();
  if (context.queues()) runner_ = std::make_unique<PassRunner>(model, context, options.graphs);
}

Scheduler::~Scheduler() = default;

AgendaLimits Scheduler::agenda_limits(bool prefix_reuse) const {
  return {.vocab_size = model_.info().vocab_size,
          .max_length = options_.allow_beyond_window ? 0 : model_.info().max_length,
          .has_tokenizer = tokenizer_ != nullptr,
          .prefix_reuse = prefix_reuse,
          .order = options_.order,
          .order_seed = options_.order_seed,
          .rope_class = [this](int32_t n) { return model_.rope_class(n); }};
}

// How far K/V look back when blocks may be reused by what they depend on, else 0: nothing is recurrent, and output rows
// find every key they read.
int64_t Scheduler::reach_tokens(const Agenda& agenda, bool prefix_reuse) const {
  const std::vector<int32_t> windows = Cache::windows(specs_);
  const bool keeps_all = std::all_of(windows.begin(), windows.end(), [](int32_t w) { return w == 0; });
  if (!prefix_reuse || (model_.two_streams() && !keeps_all) || Cache::bytes_per_state(specs_) > 0) return 0;
  int32_t n_long = 0;  // one alone finds nothing to take over
  for (int32_t i = 0; i < agenda.trie().size(); ++i) {
    const TrieNode& node = agenda.trie().node(i);
    if (node.leaf < 0 && node.length() >= kLocalTokens) ++n_long;
  }
  return n_long > 1 ? model_.info().kv_reach_tokens : 0;
}

void Scheduler::answer(std::span<const Request> requests, const AnswerSink& sink, const StopFlag& stop) {
  std::vector<Work> works;
  works.reserve(requests.size());
  for (const Request& request : requests) works.push_back(work_of(request));
  run(works, sink, stop);
}

void Scheduler::run(std::span<const Work> works, const AnswerSink& sink, const StopFlag& stop) {
  const auto begin = std::chrono::steady_clock::now();
  const AnswerSink counted = [&](Answer answer) {
    stats_.rows_reused += answer.effort.rows_reused;
    sink(std::move(answer));
  };
  Round round{.works = works, .limits = options_.memory, .sink = &counted};
  round.prefix_reuse = options_.prefix_reuse;
  round.answered.assign(works.size(), 0);
  round.todo.resize(works.size());
  std::iota(round.todo.begin(), round.todo.end(), size_t{0});
  for (bool go_on = true; go_on && !round.todo.empty();) {
    go_on = run_round(round, stop);
    round.drop_answered();
    if (round.todo.empty() && !round.alone.empty()) {
      round.todo = std::exchange(round.alone, {});
      round.prefix_reuse = false;
    }
  }
  wall_ms_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  if (wall_ms_ > 0) stats_.busy = std::min(1.0, (stats_.prefill_ms + stats_.decode_ms) / wall_ms_);
}

// Answers what it can of round.todo. False when the run was stopped.
bool Scheduler::run_round(Round& round, const StopFlag& stop) {
  if (context_.device() == Device::cpu) cache_.reset();  // costs nothing to make anew, and gives its pages back
  MemoryPlan plan = plan_passes(model_, context_, round.limits, cache_ ? cache_->bytes() : 0);
  const Agenda agenda(round.works, round.todo, agenda_limits(round.prefix_reuse));
  plan.reach_tokens = reach_tokens(agenda, round.prefix_reuse);
  for (const auto& [index, failure] : agenda.refused()) round.emit({.index = index, .result = failure, .effort = {}});
  const CacheNeeds needs(agenda.trie(), specs_, plan.chunk);
  plan.parking_bytes = parking_bytes(model_, context_, round.limits);
  const int64_t room = plan.cache_budget_bytes + plan.parking_bytes;
  const std::vector<char> large = too_large(agenda, needs, kind_bytes_, room);
  const std::string why = why_too_large(specs_, options_.memory.kv_dtype, room, plan.chunk);
  if (round.set_aside(agenda, large, why)) return true;
  plan_cache(plan, agenda, needs, kind_bytes_);
  plan.scratch_bytes = pass_scratch_bytes(model_, plan, agenda);
  Answers answers(agenda, [&](Answer answer) { round.emit(std::move(answer)); });
  answers.emit_trivial();
  std::vector<int32_t> in_flight;
  if (make_cache(plan)) {
    stats_.planned_bytes = std::max(
        stats_.planned_bytes, model_.weight_bytes() + cache_->bytes() + plan.scratch_bytes + context_.fixed_bytes());
    Run run({model_, context_, *cache_, tokenizer_, stats_, runner_.get()}, agenda, needs, plan, answers);
    const Outcome outcome = run.go(stop);
    if (outcome != Outcome::out_of_memory) return outcome == Outcome::finished;
    in_flight = run.jobs_in_flight();
  }
  if (plan.batch_size == 1 && plan.chunk <= kSmallestChunk) {
    give_up(answers, in_flight);
  } else {
    round.limits.batch_size = std::max(plan.batch_size / 2, 1);
    round.limits.chunk = std::max(plan.chunk / 2, std::min(plan.chunk, kSmallestChunk));
    if (!cache_) round.limits.bytes = std::max<int64_t>((plan.cache_bytes + plan.scratch_bytes) / 2, 1);
  }
  return true;
}

// At the smallest pass, the requests being worked on fail and the others go on.
void Scheduler::give_up(Answers& answers, std::span<const int32_t> jobs) {
  const Failure failure{ErrorCode::resource,
                        "memory ran out while the request was computed, alone and in small pieces"};
  bool any = false;
  for (const int32_t job : jobs) {
    any = any || !answers.done(job);
    answers.fail(job, failure);
  }
  if (any) return;
  throw Error(
      ErrorCode::resource, ErrorSubject::memory, "not enough memory to run the model at all",
      {.where = {}, .why = "the smallest cache does not fit", .next = "close other programs or use a smaller model"});
}

// False when memory is short; then there is no cache.
bool Scheduler::make_cache(const MemoryPlan& plan) {
  bool enough = cache_ != nullptr;
  if (enough && cache_->parked_bytes() != plan.n_parked * kind_bytes_[0]) enough = false;
  for (size_t k = 0; enough && k < plan.amounts.size(); ++k) enough = cache_has_[k] >= plan.amounts[k];
  const size_t n_groups = Cache::windows(specs_).size();
  const int32_t n_sequences = plan.amounts.size() > n_groups ? plan.amounts[n_groups] : 0;
  try {
    if (!enough) {
      cache_.reset();
      const DType dtype = options_.memory.kv_dtype;
      if (plan.n_parked > 0) {
        cache_ = std::make_unique<Cache>(context_, specs_, dtype, plan.amounts[0] - plan.n_parked, plan.n_parked,
                                         n_sequences);
      } else {
        cache_ = std::make_unique<Cache>(context_, specs_, dtype, std::span(plan.amounts).first(n_groups), n_sequences);
      }
      cache_has_ = plan.amounts;
    }
    context_.arena().reserve(static_cast<size_t>(plan.scratch_bytes));
    return true;
  } catch (const std::bad_alloc&) {
    cache_.reset();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::resource) throw;
    cache_.reset();
  }
  return false;
}

WorkPlan Scheduler::plan(std::span<const Request> requests) const {
  std::vector<Work> works;
  for (const Request& request : requests) works.push_back(work_of(request));
  std::vector<size_t> all(works.size());
  std::iota(all.begin(), all.end(), size_t{0});
  MemoryPlan memory = plan_passes(model_, context_, options_.memory);
  const Agenda agenda(works, all, agenda_limits(options_.prefix_reuse));
  memory.reach_tokens = reach_tokens(agenda, options_.prefix_reuse);
  memory.parking_bytes = parking_bytes(model_, context_, options_.memory);
  const CacheNeeds needs(agenda.trie(), specs_, memory.chunk);
  plan_cache(memory, agenda, needs, kind_bytes_);
  memory.scratch_bytes = pass_scratch_bytes(model_, memory, agenda);

  const int64_t decode_rows = agenda.new_tokens() - static_cast<int64_t>(agenda.generations().size());
  const int64_t prefill_outputs = model_.two_streams() ? agenda.wanted_rows() : 0;
  WorkPlan result;
  result.n_requests = static_cast<int64_t>(requests.size());
  result.prompt_tokens = agenda.request_tokens();
  int64_t prefill_rows = agenda.base_rows();
  if (memory.reach_tokens > 0) prefill_rows -= rows_taken_over(agenda, memory.reach_tokens, model_.two_streams());
  result.rows_planned = prefill_rows + prefill_outputs + decode_rows * (model_.two_streams() ? 2 : 1);
  result.rows_reused = agenda.request_tokens() - prefill_rows;
  result.new_tokens = agenda.new_tokens();
  result.batch_size = memory.batch_size;
  result.peak_bytes = model_.weight_bytes() + memory.cache_bytes + memory.scratch_bytes;
  return result;
}

void Scheduler::logits(std::span<const std::vector<int32_t>> sequences, bool all_rows, const LogitsSink& sink) {
  std::vector<LogitsRequest> requests(sequences.size());
  std::vector<Work> works;
  for (size_t i = 0; i < sequences.size(); ++i) {
    requests[i] = {sequences[i], all_rows, [&, i](int32_t position, const float* row) { sink(i, position, row); }};
    works.emplace_back(&requests[i]);
  }
  const StopFlag never;
  const auto check = [](const Answer& answer) {
    if (const auto* failure = std::get_if<Failure>(&answer.result)) {
      const bool memory = failure->code == ErrorCode::resource;
      throw Error(failure->code, memory ? ErrorSubject::memory : ErrorSubject::model, failure->message,
                  {.where = fmt::format("sequence {}", answer.index), .why = {}, .next = {}});
    }
  };
  run(works, check, never);
}

}  // namespace hayfork::engine
