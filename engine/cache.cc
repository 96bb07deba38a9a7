#include "engine/cache.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "base/error.h"
#include "engine/cache_blocks.h"
#include "engine/kernels/copy.h"
#include "engine/kernels/recurrent.h"

namespace hayfork::engine {
namespace {

int64_t aligned(int64_t bytes) {
  return (bytes + kStateAlign - 1) / kStateAlign * kStateAlign;
}

int32_t blocks_for(int32_t length) {
  return (length + kBlockTokens - 1) / kBlockTokens;
}

int64_t k_block_bytes(const StateSpec& spec, DType dtype) {
  return int64_t{spec.n_kv_heads} * kBlockTokens * spec.k_dim * size_of(dtype);
}

int64_t v_block_bytes(const StateSpec& spec, DType dtype) {
  return int64_t{spec.n_kv_heads} * kBlockTokens * spec.v_dim * size_of(dtype);
}

uint64_t next_number() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

struct Sequence {
  bool live = false;
  int32_t length = 0;
  int32_t slot = -1;
  std::vector<std::vector<int32_t>> tables;  // [group][block]
  std::vector<const int32_t*> rows;          // starts of the tables, for SeqView
  std::vector<int32_t> first_held;           // [group]: entries before it are −1
  int32_t first_unparked = 0;                // block
};

// What extend() would do in one group.
struct Growth {
  int32_t taken = 0, dropped = 0;
  bool copies_tail = false;
};

}  // namespace

struct Cache::Impl {
  Impl(Context& context_, std::vector<StateSpec> layers_, DType kv_dtype, std::span<const int32_t> n_blocks,
       int32_t n_parked_, int32_t n_sequences)
      : context(context_), specs(std::move(layers_)), dtype(kv_dtype), n_parked(n_parked_), slots(n_sequences) {
    const std::vector<int32_t> group_windows = windows(specs);
    HAY_CHECK(n_blocks.size() == group_windows.size() && (n_parked == 0 || n_blocks.size() == 1));
    for (size_t g = 0; g < group_windows.size(); ++g) {
      groups.emplace_back(group_windows[g], n_blocks[g] + n_parked);
      groups.back().n_near = n_blocks[g];
    }
    k.resize(specs.size());
    v.resize(specs.size());
    states.resize(specs.size());
    kv_layers.resize(specs.size());
    for (size_t i = 0; i < specs.size(); ++i) make_layer(static_cast<int32_t>(i), group_windows);
  }

  void make_layer(int32_t layer, const std::vector<int32_t>& group_windows) {
    const auto i = static_cast<size_t>(layer);
    const StateSpec& spec = specs[i];
    if (spec.n_kv_heads > 0) {
      const auto found = std::find(group_windows.begin(), group_windows.end(), spec.window);
      const auto group = static_cast<int32_t>(found - group_windows.begin());
      groups[static_cast<size_t>(group)].layers.push_back(layer);
      BlockGroup& owner = groups[static_cast<size_t>(group)];
      const bool first = owner.layers.size() == 1;
      const int32_t other = owner.base_window;
      owner.base_window = !first && (other == 0 || spec.base_window == 0) ? 0 : std::max(other, spec.base_window);
      k[i] = make_buffer(owner.n_near, k_block_bytes(spec, dtype));
      v[i] = make_buffer(owner.n_near, v_block_bytes(spec, dtype));
      kv_layers[i] = {k[i]->data(), v[i]->data(), dtype, spec.n_kv_heads, spec.k_dim, spec.v_dim, group};
    }
    if (spec.state_bytes > 0) {
      recurrent = true;
      const int64_t size = slots.size() * aligned(spec.state_bytes);
      states[i] = context.make_buffer(static_cast<size_t>(std::max<int64_t>(size, 1)));
      total_bytes += size;
    }
  }

  std::unique_ptr<Buffer> make_buffer(int64_t n_blocks, int64_t block_bytes) {
    const int64_t size = n_blocks * block_bytes, parked = n_parked * block_bytes;
    total_bytes += size;
    parked_bytes += parked;
    return context.make_parked_buffer(static_cast<size_t>(std::max<int64_t>(size, 1)), static_cast<size_t>(parked));
  }

  void* block_k(int32_t layer, int32_t block) const {
    const auto i = static_cast<size_t>(layer);
    return static_cast<char*>(k[i]->data()) + block * k_block_bytes(specs[i], dtype);
  }
  void* block_v(int32_t layer, int32_t block) const {
    const auto i = static_cast<size_t>(layer);
    return static_cast<char*>(v[i]->data()) + block * v_block_bytes(specs[i], dtype);
  }
  void* state(int32_t layer, int32_t slot) const {
    const auto i = static_cast<size_t>(layer);
    return static_cast<char*>(states[i]->data()) + slot * aligned(specs[i].state_bytes);
  }

  Sequence& at(SeqId seq) {
    HAY_CHECK(seq >= 0 && static_cast<size_t>(seq) < sequences.size() && sequences[static_cast<size_t>(seq)].live);
    return sequences[static_cast<size_t>(seq)];
  }

  SeqId make_sequence() {
    SeqId id;
    if (unused.empty()) {
      id = static_cast<SeqId>(sequences.size());
      sequences.emplace_back();
    } else {
      id = unused.back();
      unused.pop_back();
    }
    Sequence& s = sequences[static_cast<size_t>(id)];
    s.live = true;
    s.length = s.first_unparked = 0;
    s.tables.resize(groups.size());
    s.rows.assign(groups.size(), nullptr);
    s.first_held.assign(groups.size(), 0);
    if (recurrent) {
      HAY_CHECK(slots.size() > 0, "no recurrent state slot is free");
      s.slot = slots.take();
    }
    return id;
  }

  Growth growth(const Sequence& s, size_t g, int32_t new_length) const {
    const BlockGroup& group = groups[g];
    const std::vector<int32_t>& table = s.tables[g];
    Growth result;
    result.taken = blocks_for(new_length) - static_cast<int32_t>(table.size());
    if (s.length % kBlockTokens != 0 && new_length > s.length) {
      result.copies_tail = group.refs[static_cast<size_t>(table.back())] > 1;
      result.taken += result.copies_tail ? 1 : 0;
    }
    for (int32_t b = s.first_held[g]; b < first_kept(s, g); ++b) {
      if (group.refs[static_cast<size_t>(table[static_cast<size_t>(b)])] == 1) ++result.dropped;
    }
    return result;
  }

  int32_t first_kept(const Sequence& s, size_t g) const {
    return std::min(groups[g].first_visible_block(s.length), static_cast<int32_t>(s.tables[g].size()));
  }

  void drop_behind(Sequence& s, size_t g) {
    const int32_t keep = first_kept(s, g);
    for (int32_t& b = s.first_held[g]; b < keep; ++b) {
      int32_t& entry = s.tables[g][static_cast<size_t>(b)];
      groups[g].drop(entry);
      entry = -1;
    }
  }

  void copy_block(const BlockGroup& group, int32_t to, int32_t from) {
    copies.clear();
    for (const int32_t layer : group.layers) {
      const StateSpec& spec = specs[static_cast<size_t>(layer)];
      copies.push_back({block_k(layer, to), block_k(layer, from), static_cast<size_t>(k_block_bytes(spec, dtype))});
      copies.push_back({block_v(layer, to), block_v(layer, from), static_cast<size_t>(v_block_bytes(spec, dtype))});
    }
    copy_many(context, copies);
  }

  void grow(Sequence& s, size_t g, int32_t new_length) {
    BlockGroup& group = groups[g];
    std::vector<int32_t>& table = s.tables[g];
    const bool copies_tail = growth(s, g, new_length).copies_tail;
    drop_behind(s, g);
    if (copies_tail) {
      const int32_t own = take(s, g);
      copy_block(group, own, table.back());
      group.drop(table.back());
      table.back() = own;
    }
    while (static_cast<int32_t>(table.size()) < blocks_for(new_length)) table.push_back(take(s, g));
    s.rows[g] = table.data();
  }

  // A block to write: in the nearer memory as long as one of this sequence's old blocks there can make room.
  int32_t take(Sequence& s, size_t g) {
    BlockGroup& group = groups[g];
    if (!group.near_is_full() || group.base_window == 0) return group.take();
    std::vector<int32_t>& table = s.tables[g];
    // Rows from position s.length on see nothing before this block in the base stream.
    const int32_t end = std::max(0, s.length - group.base_window + 1) / kBlockTokens;
    for (int32_t& b = s.first_unparked; b < end; ++b) {
      const int32_t old = table[static_cast<size_t>(b)];
      if (old < 0 || old >= group.n_near || group.refs[static_cast<size_t>(old)] != 1) continue;
      const int32_t parked = group.take();
      copy_block(group, parked, old);
      table[static_cast<size_t>(b)] = parked;
      return old;
    }
    return group.take();
  }

  void shrink(Sequence& s, size_t g, int32_t n_blocks) {
    std::vector<int32_t>& table = s.tables[g];
    while (static_cast<int32_t>(table.size()) > n_blocks) {
      if (table.back() >= 0) groups[g].drop(table.back());
      table.pop_back();
    }
    s.first_held[g] = std::min(s.first_held[g], n_blocks);
    s.first_unparked = std::min(s.first_unparked, n_blocks);
  }

  Context& context;
  std::vector<StateSpec> specs;
  DType dtype;
  bool recurrent = false;
  int32_t n_parked = 0;
  int64_t total_bytes = 0, parked_bytes = 0;
  const uint64_t number = next_number();
  std::vector<BlockGroup> groups;
  std::vector<std::unique_ptr<Buffer>> k, v, states;  // one a layer, null where it keeps none
  std::vector<KvLayer> kv_layers;
  FreeIds slots;
  std::vector<Sequence> sequences;
  std::vector<DeviceCopy> copies;  // of the block being copied
  std::vector<SeqId> unused;
};

Cache::Cache(Context& context, std::vector<StateSpec> layers, DType kv_dtype, int32_t n_blocks, int32_t n_sequences) {
  const std::vector<int32_t> counts(windows(layers).size(), n_blocks);
  impl_ = std::make_unique<Impl>(context, std::move(layers), kv_dtype, counts, 0, n_sequences);
}

Cache::Cache(Context& context, std::vector<StateSpec> layers, DType kv_dtype, std::span<const int32_t> n_blocks,
             int32_t n_sequences)
    : impl_(std::make_unique<Impl>(context, std::move(layers), kv_dtype, n_blocks, 0, n_sequences)) {}

Cache::Cache(Context& context, std::vector<StateSpec> layers, DType kv_dtype, int32_t n_blocks, int32_t n_parked,
             int32_t n_sequences)
    : impl_(std::make_unique<Impl>(context, std::move(layers), kv_dtype, std::span(&n_blocks, 1), n_parked,
                                   n_sequences)) {}

Cache::~Cache() = default;

SeqId Cache::create() {
  const SeqId id = impl_->make_sequence();
  if (const int32_t slot = impl_->at(id).slot; slot >= 0) {
    for (size_t i = 0; i < impl_->specs.size(); ++i) {
      if (const int64_t size = impl_->specs[i].state_bytes; size > 0) {
        impl_->context.zero(state(static_cast<int32_t>(i), slot), static_cast<size_t>(size));
      }
    }
  }
  return id;
}

SeqId Cache::fork(SeqId parent, int32_t length) {
  HAY_CHECK(length >= 0 && length <= impl_->at(parent).length);
  HAY_CHECK(!impl_->recurrent || length == impl_->at(parent).length, "a recurrent state stands at its length only");
  const SeqId id = impl_->make_sequence();
  const Sequence& from = impl_->at(parent);  // after make_sequence, which may move the list
  Sequence& to = impl_->at(id);
  to.length = length;
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    BlockGroup& group = impl_->groups[g];
    const int32_t first = group.first_visible_block(length);
    HAY_CHECK(first >= from.first_held[g] || from.length == length, "keys of the window were freed already");
    to.tables[g].assign(from.tables[g].begin(), from.tables[g].begin() + blocks_for(length));
    to.first_held[g] = std::min(from.first_held[g], blocks_for(length));
    for (const int32_t block : to.tables[g]) {
      if (block >= 0) group.hold(block);
    }
    impl_->drop_behind(to, g);
    to.rows[g] = to.tables[g].data();
  }
  impl_->copies.clear();
  for (size_t i = 0; i < impl_->specs.size() && to.slot >= 0; ++i) {
    if (const int64_t size = impl_->specs[i].state_bytes; size > 0) {
      const auto layer = static_cast<int32_t>(i);
      impl_->copies.push_back({state(layer, to.slot), state(layer, from.slot), static_cast<size_t>(aligned(size))});
    }
  }
  copy_many(impl_->context, impl_->copies);
  return id;
}

void Cache::truncate(SeqId seq, int32_t length) {
  Sequence& s = impl_->at(seq);
  HAY_CHECK(length >= 0 && length <= s.length);
  HAY_CHECK(!impl_->recurrent || length == s.length, "a recurrent state stands at its length only");
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    HAY_CHECK(length == s.length || impl_->groups[g].first_visible_block(length) >= s.first_held[g],
              "keys of the window were freed already");
    impl_->shrink(s, g, blocks_for(length));
  }
  s.length = length;
}

void Cache::release(SeqId seq) {
  Sequence& s = impl_->at(seq);
  for (size_t g = 0; g < impl_->groups.size(); ++g) impl_->shrink(s, g, 0);
  if (s.slot >= 0) impl_->slots.put(s.slot);
  s.slot = -1;
  s.live = false;
  impl_->unused.push_back(seq);
}

bool Cache::extend(SeqId seq, int32_t new_length) {
  Sequence& s = impl_->at(seq);
  HAY_CHECK(new_length >= s.length);
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    const Growth growth = impl_->growth(s, g, new_length);
    if (growth.taken > impl_->groups[g].free.size() + growth.dropped) return false;
  }
  for (size_t g = 0; g < impl_->groups.size(); ++g) impl_->grow(s, g, new_length);
  s.length = new_length;
  return true;
}

int32_t Cache::length(SeqId seq) const {
  return impl_->at(seq).length;
}

int32_t Cache::blocks_needed(SeqId seq, int32_t new_length) const {
  const Sequence& s = impl_->at(seq);
  int32_t most = 0;
  for (size_t g = 0; g < impl_->groups.size(); ++g) most = std::max(most, impl_->growth(s, g, new_length).taken);
  return most;
}

int32_t Cache::free_blocks() const {
  int32_t fewest = std::numeric_limits<int32_t>::max();
  for (const BlockGroup& group : impl_->groups) fewest = std::min(fewest, group.free.size());
  return fewest;
}

int32_t Cache::held_blocks() const {
  int32_t held = 0;
  for (const BlockGroup& group : impl_->groups) held += static_cast<int32_t>(group.refs.size()) - group.free.size();
  return held;
}

int32_t Cache::live_sequences() const {
  return static_cast<int32_t>(impl_->sequences.size() - impl_->unused.size());
}

bool Cache::windowed() const {
  return std::any_of(impl_->groups.begin(), impl_->groups.end(), [](const BlockGroup& g) { return g.window > 0; });
}

int32_t Cache::free_sequences() const {
  return impl_->recurrent ? impl_->slots.size() : std::numeric_limits<int32_t>::max();
}

bool Cache::holds(SeqId seq, int32_t index) const {
  const Sequence& s = impl_->at(seq);
  return std::all_of(s.first_held.begin(), s.first_held.end(), [&](int32_t first) { return first <= index; });
}

std::vector<int32_t> Cache::hold(SeqId seq, int32_t index) {
  const Sequence& s = impl_->at(seq);
  HAY_CHECK(!impl_->recurrent && index < blocks_for(s.length));
  std::vector<int32_t> held;
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    held.push_back(s.tables[g][static_cast<size_t>(index)]);
    HAY_CHECK(held.back() >= 0, "the block was freed behind the window");
    impl_->groups[g].hold(held.back());
  }
  return held;
}

void Cache::append(SeqId seq, std::span<const int32_t> held, int32_t n) {
  Sequence& s = impl_->at(seq);
  HAY_CHECK(held.size() == impl_->groups.size() && n >= s.length % kBlockTokens && n <= kBlockTokens);
  const bool replaces = s.length % kBlockTokens != 0;
  s.length = s.length / kBlockTokens * kBlockTokens + n;
  for (size_t g = 0; g < held.size(); ++g) {
    impl_->groups[g].hold(held[g]);
    if (replaces) {
      impl_->groups[g].drop(s.tables[g].back());
      s.tables[g].pop_back();
    }
    s.tables[g].push_back(held[g]);
    impl_->drop_behind(s, g);
    s.rows[g] = s.tables[g].data();
  }
}

void Cache::copy_in(SeqId seq, std::span<const int32_t> held, int32_t n) {
  Sequence& s = impl_->at(seq);
  HAY_CHECK(held.size() == impl_->groups.size() && s.length % kBlockTokens != 0 && n > s.length % kBlockTokens);
  for (size_t g = 0; g < held.size(); ++g) {
    const BlockGroup& group = impl_->groups[g];
    const int32_t own = s.tables[g].back();
    HAY_CHECK(group.refs[static_cast<size_t>(own)] == 1, "a shared block is not written");
    impl_->copy_block(group, own, held[g]);
  }
  s.length = s.length / kBlockTokens * kBlockTokens + n;
}

void Cache::drop(std::span<const int32_t> held) {
  for (size_t g = 0; g < held.size(); ++g) impl_->groups[g].drop(held[g]);
}

SeqView Cache::view(SeqId seq, int32_t rope_tokens) const {
  const Sequence& s = impl_->at(seq);
  return {s.rows.data(), s.slot, rope_tokens, seq, static_cast<int32_t>(s.rows.size()), blocks_for(s.length)};
}

KvLayer Cache::kv(int32_t layer) const {
  return impl_->kv_layers.at(static_cast<size_t>(layer));
}

void* Cache::state(int32_t layer, int32_t slot) const {
  HAY_CHECK(slot >= 0 && impl_->states.at(static_cast<size_t>(layer)) != nullptr);
  return impl_->state(layer, slot);
}

std::vector<int32_t> Cache::windows(std::span<const StateSpec> layers) {
  std::vector<int32_t> result;
  for (const StateSpec& spec : layers) {
    if (spec.n_kv_heads > 0 && std::find(result.begin(), result.end(), spec.window) == result.end()) {
      result.push_back(spec.window);
    }
  }
  return result;
}

int64_t Cache::bytes_per_block(std::span<const StateSpec> layers, DType kv_dtype) {
  int64_t total = 0;
  for (const StateSpec& spec : layers) total += k_block_bytes(spec, kv_dtype) + v_block_bytes(spec, kv_dtype);
  return total;
}

int64_t Cache::bytes_per_block(std::span<const StateSpec> layers, DType kv_dtype, int32_t group) {
  const int32_t window = windows(layers).at(static_cast<size_t>(group));
  int64_t total = 0;
  for (const StateSpec& spec : layers) {
    if (spec.n_kv_heads > 0 && spec.window == window) {
      total += k_block_bytes(spec, kv_dtype) + v_block_bytes(spec, kv_dtype);
    }
  }
  return total;
}

int64_t Cache::bytes_per_state(std::span<const StateSpec> layers) {
  int64_t total = 0;
  for (const StateSpec& spec : layers) total += aligned(spec.state_bytes);
  return total;
}

uint64_t Cache::id() const {
  return impl_->number;
}

int64_t Cache::bytes() const {
  return impl_->total_bytes;
}

int64_t Cache::parked_bytes() const {
  return impl_->parked_bytes;
}

int32_t Cache::parked_blocks() const {
  int32_t n = 0;
  for (const BlockGroup& group : impl_->groups) {
    n += static_cast<int32_t>(
        std::count_if(group.refs.begin() + group.n_near, group.refs.end(), [](int32_t refs) { return refs > 0; }));
  }
  return n;
}

int64_t Cache::touched_bytes() const {
  int64_t total = impl_->slots.n_touched() * bytes_per_state(impl_->specs);
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    total += impl_->groups[g].free.n_touched() * bytes_per_block(impl_->specs, impl_->dtype, static_cast<int32_t>(g));
  }
  return total;
}

}  // namespace hayfork::engine
