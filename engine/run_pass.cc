// Run's forward passes: which rows, what to ask of the head, what it cost.
#include <algorithm>
#include <chrono>
#include <new>

#include "base/error.h"
#include "engine/run.h"

namespace hayfork::engine {
namespace {

// Rows whose logits are held at once: 64 · 262,144 ids · 4 bytes = 64 MiB at most.
constexpr size_t kLogitRows = 64;

}  // namespace

// True when `work` had memory enough. Nothing else is caught: other errors end the run.
template <class F>
bool Run::fits(F&& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    return false;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::resource) throw;
    return false;
  }
  return true;
}

bool Run::run_pass() {
  build_pass();
  // Every generation waits for a result, or needs no row any more if it is as expected.
  if (now_.lanes.empty()) {
    HAY_CHECK(!flights_.empty(), "nothing can be computed");
    collect();
    return true;
  }
  const std::vector<LanePtr> in_pass = now_.lanes;
  if (rows_.n_rows() > 0 && !compute()) return false;
  for (const LanePtr& lane : in_pass) {
    if (!lane->finished) advance(*lane);
  }
  std::erase_if(lanes_, [](const LanePtr& lane) { return lane->finished; });
  while (static_cast<int>(flights_.size()) >= PassRunner::kInFlight) collect();
  return true;
}

// False when memory is short.
bool Run::compute() {
  account_rows();
  const bool wants_logits =
      std::any_of(now_.queries.begin(), now_.queries.end(), [](const Query& query) { return query.wants_logits; });
  return tools_.runner != nullptr && !wants_logits ? submit() : compute_here();
}

bool Run::submit() {
  const Pass pass = rows_.pass();
  std::vector<HeadQuery> asked;
  asked.reserve(now_.queries.size());
  for (const Query& query : now_.queries) {
    asked.push_back({static_cast<int32_t>(asked.size()),
                     std::span(now_.targets).subspan(query.first_target, query.n_targets), nullptr});
  }
  if (!fits([&] { tools_.runner->submit(pass, tools_.cache, asked); })) return false;
  now_.rows.assign(pass.rows.begin(), pass.rows.end());
  flights_.push_back(std::exchange(now_, {}));
  if (pass.n_want > PassRunner::kSlots) settle();  // ids beyond these are not there for the next pass
  return true;
}

// A pass waited for at once. Results of those before it come first.
bool Run::compute_here() {
  const auto begin = std::chrono::steady_clock::now();
  ForwardResult forward;
  if (!fits([&] { forward = tools_.model.forward(tools_.context, rows_.pass(), tools_.cache); })) return false;
  const Pass pass = rows_.pass();
  now_.rows.assign(pass.rows.begin(), pass.rows.end());
  settle();
  note_bad_rows(now_, forward.nonfinite_layer);
  if (!run_head(forward.hidden)) return false;
  account_time(now_, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  end_lanes(now_);
  return true;
}

void Run::build_pass() {
  rows_.clear();
  now_ = {};
  for (const LanePtr& lane : lanes_) {
    lane->pass_seq = -1;
    lane->n_rows_base = lane->n_rows_output = 0;
    if (!in_prefill(*lane)) add_decode_rows(lane);
  }
  for (const LanePtr& lane : lanes_) {
    if (in_prefill(*lane)) add_prefill_rows(lane);
  }
  for (const LanePtr& lane : now_.lanes) now_.n_rows.push_back(lane->n_rows_base + lane->n_rows_output);
}

int32_t Run::begin_rows(const LanePtr& lane, const SeqView& view) {
  now_.lanes.push_back(lane);
  return lane->pass_seq = rows_.add_sequence(view);
}

// The token may not be known yet: then it is the arg max of the row before, which the device knows.
void Run::add_decode_rows(const LanePtr& entry) {
  Lane& lane = *entry;
  if (lane.generation->n_ids() + lane.n_ahead >= lane.generation->request().max_new_tokens) return;
  HAY_CHECK(tools_.cache.extend(lane.seq, lane.pos + 1), "a reserved block is missing");
  begin_rows(entry, tools_.cache.view(lane.seq, agenda_.rope_tokens(lane.node)));
  lane.n_rows_base = 1;
  lane.n_rows_output = two_streams_ ? 1 : 0;
  const int32_t token = lane.n_ahead > 0 ? ~lane.slot : lane.generation->last_id();
  Row row{token, lane.pos, lane.pass_seq, Stream::base, RowKind::decode, -1};
  if (two_streams_) {
    rows_.add(row);
    row.stream = Stream::output;
  }
  row.want = lane.slot = rows_.next_want();
  ++lane.n_ahead;
  rows_.add(row);
  add_query(lane, lane.pos, 0, 0);
}

// As many positions as the pass still has room for; at least one in a pass without other prefill rows. Blocks taken
// over cost no row, but output rows over them do.
void Run::add_prefill_rows(const LanePtr& entry) {
  Lane& lane = *entry;
  const TrieNode& n = node(lane.node);
  const auto used = [&] {
    return rows_.n_rows(RowKind::prefill, Stream::base) + rows_.n_rows(RowKind::prefill, Stream::output);
  };
  if (used() >= chunk_) return;
  begin_rows(entry, {});                                          // its view follows, when the cache has grown
  int32_t pos = lane.pos, there = tools_.cache.length(lane.seq);  // K/V of positions before `there` are in the cache
  bool pause = false;
  for (; pos < n.end; ++pos) {
    if (pos >= there) there = adopt_blocks(lane, pos, pause);
    if (pause) break;
    const bool wanted = lane.next_event < lane.events.size() && lane.events[lane.next_event].row == pos;
    const bool base = pos >= there, output = wanted && two_streams_;
    if (used() + (base ? 1 : 0) + (output ? 1 : 0) > chunk_ && used() > 0) break;
    Row row{n.tokens[pos - n.begin], pos, lane.pass_seq, Stream::base, RowKind::prefill, -1};
    if (wanted && !two_streams_) row.want = rows_.next_want();
    if (base) rows_.add(row);
    if (output) {
      row.stream = Stream::output;
      row.want = rows_.next_want();
      rows_.add(row);
    }
    lane.n_rows_base += base ? 1 : 0;
    lane.n_rows_output += output ? 1 : 0;
    if (!wanted) continue;
    const size_t first = lane.next_event;
    while (lane.next_event < lane.events.size() && lane.events[lane.next_event].row == pos) ++lane.next_event;
    add_query(lane, pos, first, lane.next_event);
  }
  lane.next_pos = pos;
  if (pos > tools_.cache.length(lane.seq)) {
    HAY_CHECK(tools_.cache.extend(lane.seq, pos), "a reserved block is missing");
  }
  rows_.set_view(lane.pass_seq, tools_.cache.view(lane.seq, agenda_.rope_tokens(lane.node)));
}

// Takes over what is kept from `pos` on; the position behind it. With one stream, rows that are wanted are computed.
// `pause`: the pass must not go on behind `pos`, because blocks that rows of it still read would be freed; the next one
// begins with what is kept.
int32_t Run::adopt_blocks(Lane& lane, int32_t pos, bool& pause) {
  if (lane.keys.empty() || kept_blocks_.empty()) return pos;
  int32_t end = node(lane.node).end;
  if (!two_streams_ && lane.next_event < lane.events.size()) end = lane.events[lane.next_event].row;
  int32_t there = pos;
  while (there < end) {
    const BlockIndex::Piece piece = kept_blocks_.index().find(lane.keys, there, lane.pos, end, !windowed_);
    if (piece.block == nullptr || piece.end <= there) break;
    if (windowed_ && lane.n_rows_base > 0) {
      pause = true;
      break;
    }
    // Rows before it are in this pass: their K/V come first.
    if (there == pos) HAY_CHECK(tools_.cache.extend(lane.seq, pos), "a reserved block is missing");
    kept_blocks_.adopt(lane.seq, piece);
    there = piece.end;
  }
  return there;
}

// Keeps the blocks completed by this pass, and the last one of a node as far as it goes; all as far as memory that
// nobody has reserved allows.
void Run::keep_blocks(const Lane& lane) {
  if (lane.keys.empty()) return;
  const int32_t node_end = node(lane.node).end;
  for (int32_t begin = lane.pos / kBlockTokens * kBlockTokens; begin < lane.next_pos; begin += kBlockTokens) {
    if (begin + kBlockTokens > lane.next_pos && lane.next_pos < node_end) return;
    if (std::any_of(budget_.begin(), budget_.end(), [](int32_t amount) { return amount <= 0; })) return;
    if (!kept_blocks_.insert(lane.seq, lane.keys, begin)) continue;
    for (int32_t& amount : budget_) --amount;
  }
}

void Run::add_query(Lane& lane, int32_t row, size_t first_event, size_t last_event) {
  Query query{.lane = &lane, .row = row, .first_event = first_event, .last_event = last_event};
  collect_targets(query);
  now_.queries.push_back(query);
}

// Targets of one row, each once, ascending: dispatch_event() searches them.
void Run::collect_targets(Query& query) {
  const Lane& lane = *query.lane;
  std::vector<int32_t>& targets = now_.targets;
  query.first_target = targets.size();
  if (!in_prefill(lane)) query.wants_logits = lane.generation->request().sampling.temperature > 0;
  for (size_t e = query.first_event; e < query.last_event; ++e) {
    const Part& p = part(lane.events[e].part);
    if (p.kind == PartKind::next_token) {
      const auto* request = std::get<const GenerateRequest*>(agenda_.jobs()[static_cast<size_t>(p.job)].work);
      query.wants_logits = query.wants_logits || request->sampling.temperature > 0;
    } else if (p.kind == PartKind::logits) {
      query.wants_logits = true;
    } else {
      targets.push_back(p.target(lane.events[e].result));
    }
  }
  const auto begin = targets.begin() + static_cast<std::ptrdiff_t>(query.first_target);
  std::sort(begin, targets.end());
  targets.erase(std::unique(begin, targets.end()), targets.end());
  query.n_targets = targets.size() - query.first_target;
}

// Slot i of the pass belongs to query i. Queries that want whole rows of logits go a few at a time.
bool Run::run_head(const Matrix& hidden) {
  const std::vector<Query>& queries = now_.queries;
  const size_t n = queries.size();
  std::vector<RowKind> kinds(n, RowKind::prefill);
  for (const Row& row : now_.rows) {
    if (row.want >= 0) kinds[static_cast<size_t>(row.want)] = row.kind;
  }
  for (size_t begin = 0, end; begin < n; begin = end) {
    const bool logits = queries[begin].wants_logits;
    end = begin + 1;
    while (end < n && queries[end].wants_logits == logits && (!logits || end - begin < kLogitRows)) ++end;
    std::vector<HeadResult> results;
    const bool fitted = fits([&] {
      if (logits) logits_.resize((end - begin) * vocab_size_);
      std::vector<HeadQuery> asked;
      asked.reserve(end - begin);
      for (size_t q = begin; q < end; ++q) {
        asked.push_back({static_cast<int32_t>(q - begin),
                         std::span(now_.targets).subspan(queries[q].first_target, queries[q].n_targets),
                         logits ? logits_.data() + vocab_size_ * (q - begin) : nullptr, kinds[q]});
      }
      const Matrix some = hidden.row_range(static_cast<int64_t>(begin), static_cast<int64_t>(end));
      results = tools_.model.head(tools_.context, some, asked);
    });
    if (!fitted) return false;
    HAY_CHECK(results.size() == end - begin);
    for (size_t q = begin; q < end; ++q) {
      dispatch(now_, queries[q], results[q - begin], logits ? logits_.data() + vocab_size_ * (q - begin) : nullptr);
    }
  }
  return true;
}

void Run::note_bad_rows(Flight& flight, const std::vector<int32_t>& nonfinite_layer) {
  if (nonfinite_layer.empty()) return;
  HAY_CHECK(nonfinite_layer.size() == flight.rows.size());
  for (size_t i = 0; i < flight.rows.size(); ++i) {
    const int32_t layer = nonfinite_layer[i];
    if (layer < 0) continue;
    const Row& row = flight.rows[i];
    if (row.stream == Stream::output) {
      flight.queries[static_cast<size_t>(row.want)].bad_layer = layer;
      continue;
    }
    auto& bad = flight.lanes[static_cast<size_t>(row.seq)]->bad_base;
    if (!bad || row.pos < bad->first) bad = {row.pos, layer};
  }
}

// Rows go to the request that asked for them first.
void Run::account_rows() {
  EngineStats& stats = tools_.stats;
  ++stats.n_passes;
  for (const LanePtr& lane : now_.lanes) {
    const int32_t owner = node(lane->node).owner;
    Effort& effort = answers_.effort(owner);
    effort.rows_base += lane->n_rows_base;
    effort.rows_output += lane->n_rows_output;
    effort.batch_size = std::max(effort.batch_size, static_cast<int32_t>(lanes_.size()));
    if (in_prefill(*lane)) answers_.add_prefill_rows(owner, lane->n_rows_base);
    stats.rows_base += lane->n_rows_base;
    stats.rows_output += lane->n_rows_output;
  }
}

// A pass's time is shared out by rows.
void Run::account_time(const Flight& flight, double ms) {
  EngineStats& stats = tools_.stats;
  // Pages of a planned cache that nobody wrote to are no memory on a CPU.
  const int64_t cache = tools_.context.device() == Device::cpu ? tools_.cache.touched_bytes() : tools_.cache.bytes();
  stats.cache_bytes = std::max(stats.cache_bytes, cache);
  const int64_t counted = tools_.context.peak_bytes();
  stats.peak_bytes = std::max(
      stats.peak_bytes,
      counted > 0 ? counted : stats.weight_bytes + cache + static_cast<int64_t>(tools_.context.arena().peak_bytes()));
  const auto total = static_cast<double>(flight.rows.size());
  for (size_t i = 0; i < flight.lanes.size(); ++i) {
    const Lane& lane = *flight.lanes[i];
    const double share = ms * flight.n_rows[i] / total;
    Effort& effort = answers_.effort(node(lane.node).owner);
    (in_prefill(lane) ? effort.prefill_ms : effort.decode_ms) += share;
    (in_prefill(lane) ? stats.prefill_ms : stats.decode_ms) += share;
  }
}

}  // namespace hayfork::engine
