#include "tests/support/hash_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>

namespace hayfork::test {

using engine::kBlockTokens;
using engine::RowKind;
using engine::Stream;

namespace {

constexpr int32_t kPieces = 4;  // a 64-bit value as four floats of 16 bits each
constexpr uint64_t kBad = 0xBADBADBADBADBADu;

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t z = a * 0x9E3779B97F4A7C15u + b + 0x632BE59BD9B4E019u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

void store(uint64_t value, float* to) {
  for (int32_t i = 0; i < kPieces; ++i) to[i] = static_cast<float>(value >> 16 * i & 0xFFFFu);
}

uint64_t load(const float* from) {
  uint64_t value = 0;
  for (int32_t i = 0; i < kPieces; ++i) value |= static_cast<uint64_t>(from[i]) << 16 * i;
  return value;
}

uint64_t embed(int32_t token, Stream stream, RowKind kind, int32_t rope) {
  return mix(mix(static_cast<uint64_t>(token), static_cast<uint64_t>(stream) * 2 + static_cast<uint64_t>(kind)),
             static_cast<uint64_t>(rope));
}

uint64_t read(uint64_t sum, int32_t position, uint64_t key) {
  return mix(sum ^ key, static_cast<uint64_t>(position));
}

struct State {
  uint64_t value;
  int64_t position;
};

}  // namespace

HashModel::HashModel(Options options) : options_(std::move(options)) {
  info_.name = "hash";
  info_.family = "hash";
  info_.vocab_size = options_.vocab_size;
  info_.max_length = options_.max_length;
  info_.eos_ids = options_.eos;
  const auto windowed = [](Layer layer) { return layer == Layer::window; };
  if (std::all_of(options_.layers.begin(), options_.layers.end(), windowed)) {
    info_.kv_reach_tokens = static_cast<int64_t>(options_.layers.size() - 1) * (options_.window - 1) + 1;
  }
}

std::vector<engine::StateSpec> HashModel::state_specs() const {
  std::vector<engine::StateSpec> specs;
  for (const Layer layer : options_.layers) {
    if (layer == Layer::recurrent) {
      specs.push_back({.state_bytes = sizeof(State)});
    } else {
      const bool windowed = layer == Layer::window && !options_.two_streams;
      specs.push_back(
          {.n_kv_heads = 1, .k_dim = kPieces, .v_dim = 1, .window = windowed ? options_.window : 0, .state_bytes = 0});
      if (layer == Layer::window && options_.two_streams) specs.back().base_window = options_.window;
    }
  }
  return specs;
}

engine::ForwardResult HashModel::forward(engine::Context& context, const engine::Pass& pass, engine::Cache& cache) {
  if (before_forward) before_forward(pass);
  const size_t n = pass.rows.size();
  std::vector<uint64_t> x(n);
  std::vector<int32_t> bad(n, -1), tokens(n, 0);
  bool any_bad = false;
  for (size_t i = 0; i < n; ++i) {
    const engine::Row& row = pass.rows[i];
    if (i > 0) {
      const engine::Row& last = pass.rows[i - 1];
      const auto key = [](const engine::Row& r) { return std::tuple(r.kind, r.stream, r.seq, r.pos); };
      if (!(key(last) < key(row))) throw std::logic_error("rows are out of order");
    }
    if (row.pos < 0) continue;
    ++(row.stream == Stream::base ? n_base_rows : n_output_rows);
    const int32_t rope = rope_class(pass.seqs[static_cast<size_t>(row.seq)].rope_tokens);
    tokens[i] = row.token >= 0 ? row.token : last_ids_.at(static_cast<size_t>(~row.token));
    x[i] = embed(tokens[i], row.stream, row.kind, rope);
    if (tokens[i] == options_.bad_token && row.stream == Stream::base) {
      bad[i] = 1;
      any_bad = true;
    }
  }
  for (size_t l = 0; l < options_.layers.size(); ++l) {
    const auto layer = static_cast<int32_t>(l);
    if (options_.layers[l] == Layer::recurrent) {
      for (size_t i = 0; i < n; ++i) {
        const engine::Row& row = pass.rows[i];
        if (row.pos < 0) continue;
        auto* state = static_cast<State*>(cache.state(layer, pass.seqs[static_cast<size_t>(row.seq)].state_slot));
        if (state->position != row.pos) throw std::logic_error("a recurrent state does not stand at its row");
        state->value = mix(state->value, x[i]);
        ++state->position;
        x[i] = mix(x[i], state->value);
      }
      continue;
    }
    const engine::KvLayer kv = cache.kv(layer);
    const auto place = [&](const engine::Row& row, int32_t position) {
      const engine::SeqView& view = pass.seqs[static_cast<size_t>(row.seq)];
      if (position / kBlockTokens >= view.n_blocks) throw std::logic_error("a block table is too short");
      const int32_t block = view.blocks[kv.group][position / kBlockTokens];
      if (block < 0) throw std::logic_error("a key inside the window was freed");
      return int64_t{block} * kBlockTokens + position % kBlockTokens;
    };
    for (size_t i = 0; i < n; ++i) {
      if (pass.rows[i].stream == Stream::output || pass.rows[i].pos < 0) continue;
      const int64_t at = place(pass.rows[i], pass.rows[i].pos);
      store(x[i], static_cast<float*>(kv.k) + at * kPieces);
      static_cast<float*>(kv.v)[at] = static_cast<float>(pass.rows[i].pos);
      // As the CUDA kernels do: behind the last of a sequence's rows the rest of a block that the pass began is lost.
      const auto same = [&](size_t other) {
        return pass.rows[other].seq == pass.rows[i].seq && pass.rows[other].kind == pass.rows[i].kind &&
               pass.rows[other].stream == Stream::base;
      };
      const auto slot = static_cast<size_t>(pass.rows[i].pos % kBlockTokens);
      if ((i + 1 < n && same(i + 1)) || i < slot || !same(i - slot)) continue;
      std::fill_n(static_cast<float*>(kv.v) + at + 1, kBlockTokens - 1 - static_cast<int32_t>(slot), -1.0F);
    }
    for (size_t i = 0; i < n; ++i) {
      const engine::Row& row = pass.rows[i];
      const bool windowed = options_.layers[l] == Layer::window && row.stream == Stream::base;
      uint64_t sum = mix(x[i], static_cast<uint64_t>(l));
      for (int32_t j = windowed ? std::max(0, row.pos - options_.window + 1) : 0; j <= row.pos; ++j) {
        const int64_t at = place(row, j);
        if (static_cast<float*>(kv.v)[at] != static_cast<float>(j)) throw std::logic_error("a key is at a wrong place");
        sum = read(sum, j, load(static_cast<float*>(kv.k) + at * kPieces));
      }
      x[i] = sum;
    }
  }
  engine::ForwardResult result;
  result.hidden = context.matrix(pass.n_want, kPieces, engine::DType::f32);
  std::vector<char> seen(static_cast<size_t>(pass.n_want), 0);
  for (size_t i = 0; i < n; ++i) {
    const engine::Row& row = pass.rows[i];
    if (row.want < 0) continue;
    if (options_.two_streams && row.stream == Stream::base) throw std::logic_error("a base row is wanted");
    if (++seen.at(static_cast<size_t>(row.want)) > 1) throw std::logic_error("a slot is wanted twice");
    store(tokens[i] == options_.bad_head_token ? kBad : x[i], result.hidden.f32(row.want));
  }
  if (any_bad) result.nonfinite_layer = bad;
  return result;
}

std::vector<float> HashModel::logits(uint64_t hidden) const {
  std::vector<float> result(static_cast<size_t>(options_.vocab_size));
  for (size_t v = 0; v < result.size(); ++v) {
    result[v] = static_cast<float>(mix(hidden, v) >> 40) * 0x1p-22f;  // 0 … 4
  }
  if (hidden == kBad) result[0] = std::numeric_limits<float>::quiet_NaN();
  return result;
}

namespace {

// Σ exp(logit), as the head's state holds it with a maximum of 0.
double sum_of(std::span<const float> logits) {
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  return sum;
}

}  // namespace

float HashModel::logprob(std::span<const float> logits, int32_t id) {
  const auto log_sum = static_cast<float>(std::log(sum_of(logits)));
  return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(id)]) - log_sum);
}

int32_t HashModel::argmax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::vector<engine::HeadResult> HashModel::head(engine::Context&, engine::Matrix hidden,
                                                std::span<const engine::HeadQuery> queries) {
  std::vector<engine::HeadResult> results;
  for (const engine::HeadQuery& query : queries) {
    const std::vector<float> row = logits(load(hidden.f32(query.slot)));
    engine::HeadResult result;
    result.finite = std::isfinite(row[0]);
    for (const int32_t id : query.targets) result.target_logprobs.push_back(logprob(row, id));
    if (result.finite) {
      result.argmax = argmax(row);
      result.argmax_logprob = logprob(row, result.argmax);
    }
    if (query.logits != nullptr) std::copy(row.begin(), row.end(), query.logits);
    results.push_back(std::move(result));
  }
  return results;
}

engine::QueuedPass HashModel::queue(engine::Context& context, const engine::Pass& pass, engine::Cache& cache,
                                    std::span<const engine::HeadQuery> queries) {
  context.arena().reset();
  const engine::ForwardResult result = forward(context, pass, cache);
  engine::QueuedPass out;
  out.marks = context.matrix(static_cast<int64_t>(pass.rows.size()), 1, engine::DType::i32);
  for (size_t i = 0; i < pass.rows.size(); ++i) {
    static_cast<int32_t*>(out.marks.data)[i] = result.nonfinite_layer.empty() ? -1 : result.nonfinite_layer[i];
  }
  out.head.n_rows = pass.n_want;
  out.head.rows = static_cast<engine::HeadState*>(context.arena().allocate(queries.size() * sizeof(engine::HeadState)));
  for (const engine::HeadQuery& query : queries) out.head.n_targets += static_cast<int64_t>(query.targets.size());
  out.head.picked =
      static_cast<float*>(context.arena().allocate(static_cast<size_t>(out.head.n_targets) * sizeof(float)));
  float* picked = out.head.picked;
  last_ids_.assign(queries.size(), 0);
  for (const engine::HeadQuery& query : queries) {
    const std::vector<float> row = logits(load(result.hidden.f32(query.slot)));
    const auto at = static_cast<size_t>(query.slot);
    const bool finite = std::isfinite(row[0]);
    if (finite) last_ids_[at] = argmax(row);
    const float top = row[static_cast<size_t>(last_ids_[at])];
    out.head.rows[at] = {sum_of(row), 0, top, top, last_ids_[at], finite ? 1 : 0, 0};
    for (const int32_t id : query.targets) *picked++ = row[static_cast<size_t>(id)];
  }
  return out;
}

std::vector<float> HashModel::expected(std::span<const int32_t> tokens, int32_t n_decode, int32_t planned) const {
  const auto n = static_cast<int32_t>(tokens.size());
  const int32_t rope = rope_class(planned);
  const auto kind = [&](int32_t i) { return i >= n - n_decode ? RowKind::decode : RowKind::prefill; };
  std::vector<uint64_t> x(tokens.size());
  for (int32_t i = 0; i < n; ++i) {
    x[static_cast<size_t>(i)] = embed(tokens[static_cast<size_t>(i)], Stream::base, kind(i), rope);
  }
  uint64_t out = embed(tokens.back(), Stream::output, kind(n - 1), rope);
  for (size_t l = 0; l < options_.layers.size(); ++l) {
    std::vector<uint64_t> y(x.size());
    if (options_.layers[l] == Layer::recurrent) {
      uint64_t state = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        state = mix(state, x[i]);
        y[i] = mix(x[i], state);
      }
    } else {
      const auto attend = [&](uint64_t self, int32_t position, int32_t first) {
        uint64_t sum = mix(self, l);
        for (int32_t j = first; j <= position; ++j) sum = read(sum, j, x[static_cast<size_t>(j)]);
        return sum;
      };
      for (int32_t i = 0; i < n; ++i) {
        const bool windowed = options_.layers[l] == Layer::window;
        y[static_cast<size_t>(i)] =
            attend(x[static_cast<size_t>(i)], i, windowed ? std::max(0, i - options_.window + 1) : 0);
      }
      out = attend(out, n - 1, 0);
    }
    x = std::move(y);
  }
  if (tokens.back() == options_.bad_head_token) return logits(kBad);
  return logits(options_.two_streams ? out : x.back());
}

}  // namespace hayfork::test
