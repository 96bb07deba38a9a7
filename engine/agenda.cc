#include "engine/agenda.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string_view>

#include "base/error.h"
#include "base/rng.h"
#include "engine/sampling.h"

namespace hayfork::engine {
namespace {

constexpr int64_t kMaxTokens = 1 << 30;  // positions are int32; one request must stay well inside

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

int64_t count(std::span<const int32_t> ids) {
  return static_cast<int64_t>(ids.size());
}

std::optional<std::string> id_fault(std::span<const int32_t> ids, int32_t vocab_size, std::string_view what) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return fmt::format("{} id {} at {} is outside the model's vocabulary of {}", what, ids[i], i, vocab_size);
    }
  }
  return std::nullopt;
}

std::optional<std::string> score_fault(const ScoreRequest& r, int32_t vocab_size) {
  if (auto fault = id_fault(r.context, vocab_size, "context")) return fault;
  for (size_t c = 0; c < r.continuations.size(); ++c) {
    const auto& ids = r.continuations[c];
    if (auto fault = id_fault(ids, vocab_size, "continuation")) return fault;
    if (ids.empty()) return fmt::format("continuation {} has no ids", c);
    if (r.context.empty() && ids.size() < 2) {
      return fmt::format("continuation {} has one id and no context, so nothing predicts it", c);
    }
  }
  return std::nullopt;
}

std::optional<std::string> nll_fault(const NllRequest& r, int32_t vocab_size) {
  if (r.tokens.empty()) return "no tokens";
  if (auto fault = id_fault(r.tokens, vocab_size, "token")) return fault;
  if (!r.positions) return std::nullopt;
  int32_t last = 0;
  for (const int32_t p : *r.positions) {
    if (p <= last || p >= static_cast<int32_t>(r.tokens.size())) {
      return fmt::format("position {} is out of order or outside 1…{}", p, r.tokens.size() - 1);
    }
    last = p;
  }
  return std::nullopt;
}

std::optional<std::string> generate_fault(const GenerateRequest& r, int32_t vocab_size, bool has_tokenizer) {
  if (r.prompt.empty()) return "the prompt has no ids";
  if (auto fault = id_fault(r.prompt, vocab_size, "prompt")) return fault;
  if (r.max_new_tokens < 0) return fmt::format("max_new_tokens is {}", r.max_new_tokens);
  if (!r.stops.empty() && !has_tokenizer) return "stop strings need a tokenizer, and the model has none";
  if (auto fault = sampling_fault(r.sampling); !fault.empty()) return fault;
  return std::nullopt;
}

size_t longest(const ScoreRequest& r) {
  size_t n = 0;
  for (const auto& ids : r.continuations) n = std::max(n, ids.size());
  return n;
}

// The planned total n, on which rotary tables may depend.
int64_t planned_tokens(const Work& work) {
  return std::visit(
      Overloaded{[](const ScoreRequest* r) { return count(r->context) + static_cast<int64_t>(longest(*r)); },
                 [](const NllRequest* r) { return count(r->tokens); },
                 [](const GenerateRequest* r) { return count(r->prompt) + r->max_new_tokens; },
                 [](const LogitsRequest* r) { return count(r->tokens); }},
      work);
}

// Positions the model must have: the last token of a score or an answer is predicted, never read.
int64_t positions_read(const Work& work) {
  const int64_t n = planned_tokens(work);
  return std::holds_alternative<const LogitsRequest*>(work) ? n : std::max<int64_t>(n - 1, 0);
}

uint64_t mix(uint64_t hash, uint64_t value) {
  return Rng(hash ^ value).next();
}

uint64_t digest(int32_t node, const GenerateRequest& r) {
  uint64_t h = mix(static_cast<uint64_t>(node), static_cast<uint64_t>(r.max_new_tokens) * 2 + (r.ignore_eos ? 1 : 0));
  h = mix(h, std::bit_cast<uint32_t>(r.sampling.temperature));
  h = mix(h, std::bit_cast<uint32_t>(r.sampling.top_p));
  h = mix(h, static_cast<uint64_t>(r.sampling.top_k));
  h = mix(h, r.sampling.seed);
  for (const std::string& stop : r.stops) h = mix(h, std::hash<std::string>()(stop));
  return h;
}

bool same_settings(const GenerateRequest& a, const GenerateRequest& b) {
  return a.max_new_tokens == b.max_new_tokens && a.ignore_eos == b.ignore_eos && a.stops == b.stops &&
         a.sampling.temperature == b.sampling.temperature && a.sampling.top_p == b.sampling.top_p &&
         a.sampling.top_k == b.sampling.top_k && a.sampling.seed == b.sampling.seed;
}

}  // namespace

Agenda::Agenda(std::span<const Work> works, std::span<const size_t> subset, AgendaLimits limits)
    : limits_(std::move(limits)) {
  for (const size_t index : ordered(works, subset)) {
    if (auto why = fault(works[index])) {
      refused_.emplace_back(index, Failure{ErrorCode::usage, std::move(*why)});
    } else {
      add(works[index], index);
    }
  }
  trie_.finish();
  place_wants();
}

std::optional<std::string> Agenda::fault(const Work& work) const {
  if (planned_tokens(work) > kMaxTokens) return std::string("the request is longer than 2^30 tokens");
  const auto wrong = std::visit(Overloaded{[&](const ScoreRequest* r) { return score_fault(*r, limits_.vocab_size); },
                                           [&](const NllRequest* r) { return nll_fault(*r, limits_.vocab_size); },
                                           [&](const GenerateRequest* r) {
                                             return generate_fault(*r, limits_.vocab_size, limits_.has_tokenizer);
                                           },
                                           [&](const LogitsRequest* r) {
                                             return r->tokens.empty()
                                                        ? std::optional<std::string>("no tokens")
                                                        : id_fault(r->tokens, limits_.vocab_size, "token");
                                           }},
                                work);
  if (wrong) return wrong;
  if (const int64_t n = positions_read(work); limits_.max_length > 0 && n > limits_.max_length) {
    return fmt::format(
        "the request needs {} positions and the model has {}: shorten it, or pass --allow-beyond-window to run it "
        "anyway",
        n, limits_.max_length);
  }
  return std::nullopt;
}

// planned: long ones first (by powers of two, so that equals keep their order): the tail of a run is then made of short
// requests that fill the batch to its end, and what does not fit in memory is known at once.
std::vector<size_t> Agenda::ordered(std::span<const Work> works, std::span<const size_t> subset) const {
  std::vector<size_t> order(subset.begin(), subset.end());
  switch (limits_.order) {
    case Order::given:
      break;
    case Order::reverse:
      std::reverse(order.begin(), order.end());
      break;
    case Order::shuffle: {
      Rng rng(limits_.order_seed, "order");
      for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
      break;
    }
    case Order::planned: {
      const auto size_class = [&](size_t i) {
        return std::bit_width(static_cast<uint64_t>(std::max<int64_t>(planned_tokens(works[i]), 0)));
      };
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return size_class(a) > size_class(b); });
    }
  }
  return order;
}

int32_t Agenda::root(int32_t owner, int32_t rope_tokens) {
  const int32_t rope = limits_.rope_class ? limits_.rope_class(rope_tokens) : 0;
  for (const auto& [known, node] : roots_) {
    if (known == rope) return node;
  }
  roots_.emplace_back(rope, trie_.add_root(owner));
  return roots_.back().second;
}

void Agenda::add(const Work& work, size_t index) {
  const auto owner = static_cast<int32_t>(jobs_.size());
  const auto first_part = static_cast<int32_t>(parts_.size());
  jobs_.push_back({.work = work,
                   .index = index,
                   .rope_tokens = static_cast<int32_t>(planned_tokens(work)),
                   .first_part = first_part});
  std::visit(
      Overloaded{[&](const ScoreRequest* r) { add_score(owner, *r); }, [&](const NllRequest* r) { add_nll(owner, *r); },
                 [&](const GenerateRequest* r) { add_generate(owner, *r); },
                 [&](const LogitsRequest* r) { add_logits(owner, *r); }},
      work);
  Job& job = jobs_.back();
  job.n_parts = static_cast<int32_t>(parts_.size()) - first_part;
  for (int32_t p = 0; p < job.n_parts; ++p) job.n_results += parts_[static_cast<size_t>(first_part + p)].n;
}

// Without reuse every continuation has a context of its own.
void Agenda::add_score(int32_t owner, const ScoreRequest& r) {
  const int32_t start = root(owner, jobs_.back().rope_tokens);
  const auto n = static_cast<int32_t>(r.context.size());
  // The context's last row is needed only to predict a continuation.
  const auto read =
      std::span(r.context).first(r.continuations.empty() && n > 0 ? r.context.size() - 1 : r.context.size());
  int64_t tokens = limits_.prefix_reuse ? count(read) : 0;
  const auto context_node = [&] {
    if (!limits_.prefix_reuse) tokens += count(read);
    return trie_.insert(start, read, owner, limits_.prefix_reuse);
  };
  int32_t context = -1;
  if (r.context_nll && n > 1) {
    context = context_node();
    parts_.push_back(
        {.job = owner, .kind = PartKind::context, .node = context, .n = n - 1, .targets = r.context.data() + 1});
  }
  for (size_t c = 0; c < r.continuations.size(); ++c) {
    const std::span<const int32_t> ids = r.continuations[c];
    if (context < 0 || !limits_.prefix_reuse) context = context_node();
    const int32_t node = trie_.insert(context, ids.first(ids.size() - 1), owner, limits_.prefix_reuse);
    Part part{.job = owner, .kind = PartKind::continuation, .index = static_cast<int32_t>(c), .node = node};
    part.n = static_cast<int32_t>(ids.size()) - (n == 0 ? 1 : 0);
    part.first_row = std::max(n - 1, 0);
    part.targets = ids.data() + (n == 0 ? 1 : 0);
    parts_.push_back(part);
    tokens += count(ids) - 1;
  }
  jobs_.back().n_tokens = parts_.size() == static_cast<size_t>(jobs_.back().first_part) ? 0 : tokens;
}

void Agenda::add_nll(int32_t owner, const NllRequest& r) {
  const int32_t* positions = r.positions ? r.positions->data() : nullptr;
  const auto n = static_cast<int32_t>(r.positions ? r.positions->size() : r.tokens.size() - 1);
  if (n == 0) return;
  const int32_t n_rows = positions != nullptr ? positions[n - 1] : n;  // nothing is read past the last wanted row
  const auto read = std::span(r.tokens).first(static_cast<size_t>(n_rows));
  const int32_t node = trie_.insert(root(owner, jobs_.back().rope_tokens), read, owner, limits_.prefix_reuse);
  parts_.push_back({.job = owner,
                    .kind = PartKind::nll,
                    .node = node,
                    .n = n,
                    .targets = r.tokens.data() + (positions != nullptr ? 0 : 1),
                    .positions = positions});
  jobs_.back().n_tokens = n_rows;
}

int32_t Agenda::find_generation(int32_t node, const GenerateRequest& r) const {
  if (!limits_.prefix_reuse) return -1;
  const auto [begin, end] = equal_generations_.equal_range(digest(node, r));
  for (auto it = begin; it != end; ++it) {
    const GenerationPlan& known = generations_[static_cast<size_t>(it->second)];
    const auto* other = std::get<const GenerateRequest*>(jobs_[static_cast<size_t>(known.jobs.front())].work);
    if (trie_.node(known.node).parent == node && same_settings(*other, r)) return it->second;
  }
  return -1;
}

void Agenda::add_generate(int32_t owner, const GenerateRequest& r) {
  if (r.max_new_tokens == 0) return;
  const auto n = static_cast<int32_t>(r.prompt.size());
  const int32_t node = trie_.insert(root(owner, jobs_.back().rope_tokens), r.prompt, owner, limits_.prefix_reuse);
  jobs_.back().n_tokens = n;
  if (const int32_t known = find_generation(node, r); known >= 0) {
    jobs_.back().generation = known;
    generations_[static_cast<size_t>(known)].jobs.push_back(owner);
    return;
  }
  const auto id = static_cast<int32_t>(generations_.size());
  jobs_.back().generation = id;
  const int32_t leaf = trie_.add_leaf(node, r.max_new_tokens - 1, owner, id);
  generations_.push_back({.node = leaf, .jobs = {owner}});
  equal_generations_.emplace(digest(node, r), id);
  parts_.push_back({.job = owner, .kind = PartKind::next_token, .index = id, .node = node, .first_row = n - 1, .n = 1});
}

void Agenda::add_logits(int32_t owner, const LogitsRequest& r) {
  const auto n = static_cast<int32_t>(r.tokens.size());
  const int32_t node = trie_.insert(root(owner, jobs_.back().rope_tokens), r.tokens, owner, limits_.prefix_reuse);
  parts_.push_back({.job = owner,
                    .kind = PartKind::logits,
                    .node = node,
                    .first_row = r.all_rows ? 0 : n - 1,
                    .n = r.all_rows ? n : 1});
  jobs_.back().n_tokens = n;
}

// Splits each part's results among the nodes on the path to its end, and groups them by node.
void Agenda::place_wants() {
  std::vector<std::pair<int32_t, Want>> placed;
  for (size_t p = 0; p < parts_.size(); ++p) {
    const Part& part = parts_[p];
    int32_t last = part.n;
    for (int32_t id = part.node; last > 0; id = trie_.node(id).parent) {
      HAY_CHECK(id >= 0);
      const int32_t begin = trie_.node(id).begin;
      int32_t low = 0, high = last;  // the first result whose row is in this node or below
      while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        (part.row(middle) < begin ? low : high) = part.row(middle) < begin ? middle + 1 : middle;
      }
      if (low < last) placed.push_back({id, {static_cast<int32_t>(p), low, last}});
      last = low;
    }
  }
  want_begin_.assign(static_cast<size_t>(trie_.size()) + 1, 0);
  for (const auto& [id, want] : placed) ++want_begin_[static_cast<size_t>(id) + 1];
  for (size_t i = 1; i < want_begin_.size(); ++i) want_begin_[i] += want_begin_[i - 1];
  wants_.resize(placed.size());
  std::vector<size_t> next(want_begin_.begin(), want_begin_.end() - 1);
  for (const auto& [id, want] : placed) wants_[next[static_cast<size_t>(id)]++] = want;
}

int64_t Agenda::base_rows() const {
  int64_t total = 0;
  for (int32_t i = 0; i < trie_.size(); ++i) {
    if (trie_.node(i).leaf < 0) total += trie_.node(i).length();
  }
  return total;
}

std::vector<int32_t> Agenda::wanted_rows(int32_t node) const {
  std::vector<int32_t> rows;
  for (const Want& want : wants(node)) {
    const Part& part = parts_[static_cast<size_t>(want.part)];
    for (int32_t r = want.first; r < want.last; ++r) rows.push_back(part.row(r));
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

int64_t Agenda::wanted_rows() const {
  int64_t total = 0;
  for (int32_t i = 0; i < trie_.size(); ++i) total += static_cast<int64_t>(wanted_rows(i).size());
  return total;
}

int64_t Agenda::request_tokens() const {
  int64_t total = 0;
  for (const Job& job : jobs_) total += job.n_tokens;
  return total;
}

int64_t Agenda::new_tokens() const {
  int64_t total = 0;
  for (const GenerationPlan& plan : generations_) {
    const auto& job = jobs_[static_cast<size_t>(plan.jobs.front())];
    total += std::get<const GenerateRequest*>(job.work)->max_new_tokens;
  }
  return total;
}

}  // namespace hayfork::engine
