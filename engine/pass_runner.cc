#include "engine/pass_runner.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace hayfork::engine {
namespace {

// Counts of sequences that have graphs: 1, 2, 3, 4, 6, 8, 12, … A step's time hardly depends on rows that do nothing.
int32_t shape_of(int32_t n) {
  const auto power = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(n)));
  return n == power ? n : n <= power + power / 2 ? power + power / 2 : 2 * power;
}

// Parts of the host copy, each at a multiple of 8 bytes.
size_t padded(size_t bytes) {
  return (bytes + 7) / 8 * 8;
}

}  // namespace

PassRunner::PassRunner(Model& model, Context& context, bool graphs)
    : model_(model),
      context_(context),
      graphs_(graphs && model.records()),
      last_layer_(static_cast<int32_t>(model.state_specs().size()) - 1) {
  HAY_CHECK(context.queues());
  for (Flight& flight : flights_) {
    flight.begin = context.make_fence();
    flight.end = context.make_fence();
  }
}

PassRunner::~PassRunner() {
  drop();
}

void PassRunner::drop() {
  for (; pending_ > 0; --pending_, first_ = (first_ + 1) % kInFlight) {
    try {
      flights_[static_cast<size_t>(first_)].end->wait();
    } catch (const Error&) {
      // Nobody wants this pass any more. A device that is lost says so to whoever asks it next, or has done so before.
    }
  }
}

bool PassRunner::fits_graph(const Pass& pass, std::span<const HeadQuery> queries) const {
  return graphs_ && pass.n_want == static_cast<int32_t>(pass.seqs.size()) &&
         std::all_of(pass.rows.begin(), pass.rows.end(), [](const Row& row) { return row.kind == RowKind::decode; }) &&
         std::all_of(queries.begin(), queries.end(), [](const HeadQuery& query) { return query.targets.empty(); });
}

void PassRunner::submit(const Pass& pass, Cache& cache, std::span<const HeadQuery> queries) {
  HAY_CHECK(pending_ < kInFlight && static_cast<int32_t>(queries.size()) == pass.n_want);
  Flight& flight = flights_[static_cast<size_t>((first_ + pending_) % kInFlight)];
  flight.place.resize(pass.rows.size());
  flight.wants.resize(pass.rows.size());
  flight.n_targets.resize(queries.size());
  for (size_t i = 0; i < pass.rows.size(); ++i) {
    flight.place[i] = static_cast<int32_t>(i);
    flight.wants[i] = pass.rows[i].want;
  }
  for (size_t i = 0; i < queries.size(); ++i) {
    HAY_CHECK(queries[i].slot == static_cast<int32_t>(i) && queries[i].logits == nullptr);
    flight.n_targets[i] = static_cast<int32_t>(queries[i].targets.size());
  }
  flight.begin->set();
  QueuedPass queued;
  if (fits_graph(pass, queries)) {
    queued = run_shape(pass, cache);
    const size_t n = pass.seqs.size();  // base rows, then output rows, each filled up
    for (size_t i = n; i < pass.rows.size(); ++i) flight.place[i] += static_cast<int32_t>(seqs_.size() - n);
  } else {
    queued = model_.queue(context_, pass, cache, queries);
  }
  fetch(flight, queued);
  flight.end->set();
  ++pending_;
}

// The pass with rows that do nothing added, up to the shape.
void PassRunner::pad(const Pass& pass, Shape shape) {
  const auto n = static_cast<int32_t>(pass.seqs.size());
  rows_.clear();
  seqs_.assign(pass.seqs.begin(), pass.seqs.end());
  seqs_.resize(static_cast<size_t>(shape.n_seqs), pass.seqs.front());
  for (size_t begin = 0; begin < pass.rows.size(); begin += pass.seqs.size()) {
    const auto some = pass.rows.subspan(begin, pass.seqs.size());
    rows_.insert(rows_.end(), some.begin(), some.end());
    for (int32_t s = n; s < shape.n_seqs; ++s) {
      rows_.push_back({0, -1, s, some.front().stream, RowKind::decode, some.front().want >= 0 ? s : -1});
    }
  }
}

QueuedPass PassRunner::run_shape(const Pass& pass, Cache& cache) {
  HAY_CHECK(pass.rows.size() % pass.seqs.size() == 0);
  if (cache.id() != cache_id_) shapes_.clear();  // they write to another one's memory
  cache_id_ = cache.id();
  int32_t blocks = 1;
  for (const SeqView& seq : pass.seqs) blocks = std::max(blocks, seq.n_blocks);
  const Shape shape{shape_of(static_cast<int32_t>(pass.seqs.size())),
                    static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(blocks)))};
  pad(pass, shape);
  const Pass filled{rows_, seqs_, shape.n_seqs, shape.n_blocks};
  std::vector<HeadQuery> queries;
  for (int32_t slot = 0; slot < shape.n_seqs; ++slot) queries.push_back({slot, {}, nullptr});
  Graph& graph = shapes_[shape];
  if (graph.recording && !graph.recording->valid()) graph = {};
  // The first pass of a shape shows how much scratch memory it takes, and many shapes come only once.
  if (graph.seen && !graph.recording && !graph.refused) {
    graph.recording = context_.record([&] { graph.out = model_.queue(context_, filled, cache, queries); });
    graph.refused = graph.recording == nullptr;
  }
  graph.seen = true;
  if (!graph.recording) return model_.queue(context_, filled, cache, queries);
  graph.recording->run(filled);
  return graph.out;
}

void PassRunner::fetch(Flight& flight, const QueuedPass& queued) {
  flight.n_marks = static_cast<size_t>(queued.marks.rows);
  flight.n_last = static_cast<size_t>(queued.last_marks.rows);
  const size_t marks = padded(flight.n_marks * sizeof(int32_t)), last = padded(flight.n_last * sizeof(int32_t));
  const size_t heads = static_cast<size_t>(queued.head.n_rows) * sizeof(HeadState);
  const size_t picked = static_cast<size_t>(queued.head.n_targets) * sizeof(float);
  const size_t total = marks + last + heads + picked;
  if (!flight.host || flight.host->bytes() < total) {
    flight.host.reset();
    flight.host = context_.make_host_buffer(total + total / 2 + 4096);
  }
  auto* to = static_cast<char*>(flight.host->data());
  context_.fetch(to, queued.marks.data, flight.n_marks * sizeof(int32_t));
  context_.fetch(to + marks, queued.last_marks.data, flight.n_last * sizeof(int32_t));
  context_.fetch(to + marks + last, queued.head.rows, heads);
  context_.fetch(to + marks + last + heads, queued.head.picked, picked);
}

PassResults PassRunner::collect() {
  HAY_CHECK(pending_ > 0);
  Flight& flight = flights_[static_cast<size_t>(first_)];
  first_ = (first_ + 1) % kInFlight;
  --pending_;
  flight.end->wait();
  const auto* at = static_cast<const char*>(flight.host->data());
  const auto* marks = reinterpret_cast<const int32_t*>(at);
  at += padded(flight.n_marks * sizeof(int32_t));
  const std::span last(reinterpret_cast<const int32_t*>(at), flight.n_last);
  at += padded(flight.n_last * sizeof(int32_t));
  // Rows that fill up a shape come last, so that the first slots' states are the queries'.
  const auto* heads = reinterpret_cast<const HeadState*>(at);
  PassResults results;
  results.ms = flight.end->ms_since(*flight.begin);
  for (size_t i = 0; i < flight.place.size(); ++i) {
    const int32_t layer = marks[flight.place[i]];
    if (layer < 0) continue;
    if (results.nonfinite_layer.empty()) results.nonfinite_layer.assign(flight.place.size(), -1);
    results.nonfinite_layer[i] = layer;
  }
  merge_marks(flight.wants, last, last_layer_, results.nonfinite_layer);
  const auto* picked = reinterpret_cast<const float*>(heads + flight.n_targets.size());
  for (const HeadRowResult& row : head_read(heads, picked, flight.n_targets)) results.heads.push_back(head_result(row));
  return results;
}

}  // namespace hayfork::engine
