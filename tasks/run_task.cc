#include "tasks/run_task.h"

#include <algorithm>
#include <map>

#include "base/parallel.h"

namespace hayfork::tasks {
namespace {

int64_t request_tokens(const engine::Request& request) {
  if (const auto* generate = std::get_if<engine::GenerateRequest>(&request))
    return static_cast<int64_t>(generate->prompt.size());
  if (const auto* nll = std::get_if<engine::NllRequest>(&request)) return static_cast<int64_t>(nll->tokens.size());
  const auto& score = std::get<engine::ScoreRequest>(request);
  auto n = static_cast<int64_t>(score.context.size());
  for (const auto& continuation : score.continuations) n += static_cast<int64_t>(continuation.size());
  return n;
}

// Samples whose requests are held at once.
struct Block {
  std::vector<int64_t> indices;
  std::vector<Sample> samples;
  std::vector<std::string> faults;  // why a sample could not be made; "" when it was
  std::vector<engine::Request> requests;
  std::vector<std::pair<size_t, size_t>> owner;  // of each request: sample, place in its list
  std::vector<std::vector<engine::Answer>> answers;
  std::vector<size_t> missing;  // answers a sample still waits for
};

bool ends_the_run(const Error& error) {
  return error.code() == ErrorCode::resource || error.code() == ErrorCode::device ||
         error.code() == ErrorCode::internal;
}

// A sample that cannot be made (it does not fit, a document is broken) is a failed sample.
void make_sample(const Task& task, int64_t index, Sample& sample, std::string& fault) {
  try {
    sample = task.sample(index);
  } catch (const Error& error) {
    if (ends_the_run(error)) throw;
    static_cast<SampleKey&>(sample) = task.key(index);
    fault = error.what();
  }
}

// Makes samples from `next` on until about `max_tokens` are held; always at least one.
Block make_block(const Task& task, std::span<const int64_t> selected, size_t& next, const RunOptions& options) {
  constexpr size_t kBatch = 64;  // made at once, by all threads
  Block block;
  int64_t held = 0;
  while (next < selected.size() && (block.samples.empty() || held < options.max_block_tokens)) {
    const size_t n = std::min(kBatch, selected.size() - next);
    std::vector<Sample> made(n);
    std::vector<std::string> faults(n);
    parallel_for(static_cast<int64_t>(n), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        make_sample(task, selected[next + static_cast<size_t>(i)], made[i], faults[i]);
    });
    for (size_t i = 0; i < n; ++i) {
      block.faults.push_back(std::move(faults[i]));
      for (const engine::Request& request : made[i].requests) held += request_tokens(request);
      block.indices.push_back(selected[next + i]);
      block.samples.push_back(std::move(made[i]));
    }
    next += n;
    if (options.prepared) options.prepared(static_cast<int64_t>(next));
  }
  for (size_t s = 0; s < block.samples.size(); ++s) {
    std::vector<engine::Request>& own = block.samples[s].requests;
    HAY_CHECK(!own.empty() || !block.faults[s].empty());
    for (size_t i = 0; i < own.size(); ++i) {
      block.requests.push_back(std::move(own[i]));
      block.owner.emplace_back(s, i);
    }
    block.answers.emplace_back(own.size());
    block.missing.push_back(own.size());
  }
  return block;
}

engine::Effort total_effort(std::span<const engine::Answer> answers) {
  engine::Effort sum;
  for (const engine::Answer& a : answers) {
    sum.rows_base += a.effort.rows_base;
    sum.rows_output += a.effort.rows_output;
    sum.rows_reused += a.effort.rows_reused;
    sum.prefill_ms += a.effort.prefill_ms;
    sum.decode_ms += a.effort.decode_ms;
    sum.batch_size = std::max(sum.batch_size, a.effort.batch_size);
  }
  return sum;
}

// Scoring that throws is this sample's failure, unless the whole run must end.
SampleScore score_sample(const Task& task, const Sample& sample, std::span<const engine::Answer> answers) {
  try {
    return task.score(sample, answers);
  } catch (const Error& error) {
    if (ends_the_run(error)) throw;
    SampleScore failed;
    failed.status = Status::failed;
    failed.error = error.what();
    return failed;
  }
}

void count(RunTotals& totals, const SampleResult& result) {
  switch (result.score.status) {
    case Status::ok:
      ++totals.n_ok;
      break;
    case Status::failed:
      ++totals.n_failed;
      break;
    case Status::skipped:
      ++totals.n_skipped;
      break;
  }
  totals.n_truncated += result.sample.truncated;
  totals.n_cut += std::any_of(result.answers.begin(), result.answers.end(), [](const engine::Answer& a) {
    const auto* generated = std::get_if<engine::GenerateAnswer>(&a.result);
    return generated != nullptr && generated->finish == engine::Finish::length;
  });
}

}  // namespace

std::vector<int64_t> selected_samples(const Task& task, const RunOptions& options) {
  HAY_CHECK(options.n_shards >= 1 && options.shard >= 0 && options.shard < options.n_shards);
  std::vector<int64_t> all = options.only;
  std::sort(all.begin(), all.end());
  if (all.empty())
    for (int64_t i = 0; i < task.n_samples(); ++i) all.push_back(i);
  std::vector<int64_t> out;
  for (const int64_t index : all) {
    if (index % options.n_shards != options.shard) continue;
    if (options.done != nullptr && !options.done->empty()) {
      const SampleKey key = task.key(index);
      if (options.done->contains({key.doc_id, key.repeat})) continue;
    }
    out.push_back(index);
  }
  return out;
}

RunTotals run_task(const Task& task, engine::Lm& lm, const RunOptions& options, const ResultSink& sink,
                   const StopFlag& stop) {
  const std::vector<int64_t> selected = selected_samples(task, options);
  RunTotals totals;
  totals.n_selected = static_cast<int64_t>(selected.size());
  for (size_t next = 0; next < selected.size() && !stop.soft();) {
    Block block = make_block(task, selected, next, options);
    for (size_t s = 0; s < block.samples.size(); ++s) {
      if (block.faults[s].empty()) continue;
      SampleResult result;
      result.index = block.indices[s];
      result.sample = std::move(block.samples[s]);
      result.score.status = Status::failed;
      result.score.error = std::move(block.faults[s]);
      count(totals, result);
      sink(std::move(result));
    }
    const auto take = [&](engine::Answer answer) {
      HAY_CHECK(answer.index < block.owner.size());
      const auto [s, place] = block.owner[answer.index];
      HAY_CHECK(block.missing[s] > 0);
      answer.index = place;
      block.answers[s][place] = std::move(answer);
      if (--block.missing[s] > 0) return;
      SampleResult result;
      result.index = block.indices[s];
      result.sample = std::move(block.samples[s]);
      result.sample.requests.clear();
      result.answers = std::move(block.answers[s]);
      result.score = score_sample(task, result.sample, result.answers);
      result.effort = total_effort(result.answers);
      count(totals, result);
      sink(std::move(result));
    };
    lm.answer(block.requests, take, stop);
  }
  totals.stopped = totals.n_ok + totals.n_failed + totals.n_skipped < totals.n_selected;
  return totals;
}

}  // namespace hayfork::tasks
