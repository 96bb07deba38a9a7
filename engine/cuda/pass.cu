// The device's copy of a pass: rows, block tables, and how rows are dealt to attention's blocks, in one upload.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "engine/cache.h"
#include "engine/cuda/device.cuh"
#include "engine/cuda/recording.cuh"

namespace hayfork::engine::cuda {
namespace {

constexpr size_t kPieceAlign = 256;

size_t aligned(size_t bytes) {
  return (std::max<size_t>(bytes, 1) + kPieceAlign - 1) / kPieceAlign * kPieceAlign;
}

bool is_split(const Row& row) {
  return row.kind == RowKind::decode || row.stream == Stream::output;
}

// Long tiles first: causal work grows with the position, and the last blocks to start should be short.
void cut_tiles(std::vector<RowTile>& tiles, std::span<const Row> rows, int32_t most) {
  tiles.clear();
  for (int32_t i = 0; i < static_cast<int32_t>(rows.size()); ++i) {
    const Row& row = rows[static_cast<size_t>(i)];
    if (is_split(row)) continue;
    // A gap between positions ends a tile: its keys would be visited for nothing.
    const bool extends = !tiles.empty() && tiles.back().first + tiles.back().n == i && tiles.back().seq == row.seq &&
                         tiles.back().max_pos + 1 == row.pos && tiles.back().n < most;
    if (!extends) tiles.push_back({i, 0, row.seq, row.pos, row.pos, row.stream});
    RowTile& tile = tiles.back();
    ++tile.n;
    tile.min_pos = std::min(tile.min_pos, row.pos);
    tile.max_pos = std::max(tile.max_pos, row.pos);
  }
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const RowTile& a, const RowTile& b) { return a.max_pos > b.max_pos; });
}

}  // namespace

// Room in the slab that this pass fills; one that is too small is replaced by a larger one, when it is free.
char* CudaContext::pinned(size_t bytes) {
  Slab& slab = slabs_[slab_];
  if (slab.used + bytes > slab.capacity) {
    HAY_CUDA(cudaStreamSynchronize(stream_));  // copies already queued from it must end first
    if (slab.host != nullptr) HAY_CUDA(cudaFreeHost(slab.host));
    slab.host = nullptr;
    slab.capacity = std::max<size_t>((slab.used + bytes) * 2, size_t{1} << 20);
    slab.used = 0;
    HAY_CUDA(cudaMallocHost(reinterpret_cast<void**>(&slab.host), slab.capacity));
  }
  char* p = slab.host + slab.used;
  slab.used += bytes;
  return p;
}

void* CudaContext::stage(const void* from_host, size_t bytes) {
  if (recording_ != nullptr) return recording_->keep(from_host, bytes);
  void* to = arena_->allocate(std::max<size_t>(bytes, 16));
  if (bytes == 0) return to;
  char* from = pinned(aligned(bytes));
  std::memcpy(from, from_host, bytes);
  HAY_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_));
  return to;
}

const Row* CudaContext::device_rows(std::span<const Row> rows) const {
  const auto offset = rows.data() - host_rows_.data();
  HAY_CHECK(offset >= 0 && static_cast<size_t>(offset) + rows.size() <= host_rows_.size());
  return device_pass_.rows + offset;
}

// Tiles of prefill base rows, and items of the others.
void CudaContext::split_pass(const Pass& pass) {
  DevicePass& out = device_pass_;
  cut_tiles(tiles_, pass.rows, kTileRows);
  cut_tiles(wide_tiles_, pass.rows, kWideTileRows);
  std::vector<std::vector<int32_t>> split[2];  // [kind][seq] → rows
  for (auto& of_kind : split) of_kind.resize(pass.seqs.size());
  // What the pass writes is known where all rows are decode rows, each at the end of a sequence of its own. Else keys
  // are written between reused ones, by sequences that share blocks, and by rows of the pass that this one is part of.
  std::vector<int32_t> written_from(pass.seqs.size(), -1);
  const bool only_decode =
      std::all_of(pass.rows.begin(), pass.rows.end(), [](const Row& row) { return row.kind == RowKind::decode; });
  for (int32_t i = 0; i < out.n_rows; ++i) {
    const Row& row = pass.rows[static_cast<size_t>(i)];
    out.max_pos = std::max(out.max_pos, row.pos);
    if (only_decode && row.stream == Stream::base && row.pos >= 0) {
      int32_t& from = written_from[static_cast<size_t>(row.seq)];
      from = from < 0 ? row.pos : std::min(from, row.pos);
    }
    if (is_split(row)) split[static_cast<size_t>(row.kind)][static_cast<size_t>(row.seq)].push_back(i);
  }
  split_items_.clear();
  split_runs_.clear();
  split_rows_.clear();
  for (const RowKind kind : {RowKind::prefill, RowKind::decode}) {
    SplitRun run{kind, static_cast<int32_t>(split_items_.size()), 0, 0, -1};
    for (size_t seq = 0; seq < pass.seqs.size(); ++seq) {
      const std::vector<int32_t>& rows = split[static_cast<size_t>(kind)][seq];
      for (size_t i = 0; i < rows.size(); i += kSplitRows) {
        const size_t n = std::min<size_t>(kSplitRows, rows.size() - i);
        SplitItem item{static_cast<int32_t>(split_rows_.size()),
                       static_cast<int32_t>(n),
                       static_cast<int32_t>(seq),
                       -1,
                       written_from[seq],
                       -1,
                       -1};
        for (size_t j = i; j < i + n; ++j) {
          split_rows_.push_back(rows[j]);
          const Row& row = pass.rows[static_cast<size_t>(rows[j])];
          item.max_pos = std::max(item.max_pos, row.pos);
          int32_t& min_pos = row.stream == Stream::base ? item.min_base : item.min_output;
          if (row.pos >= 0) min_pos = min_pos < 0 ? row.pos : std::min(min_pos, row.pos);
        }
        split_items_.push_back(item);
        ++run.n_items;
        run.n_rows += item.n;
        run.max_pos = std::max(run.max_pos, item.max_pos);
      }
    }
    if (pass.n_blocks > 0) run.max_pos = pass.n_blocks * kBlockTokens - 1;
    if (run.n_items > 0) split_runs_.push_back(run);
  }
}

void CudaContext::begin_pass(const Pass& pass) {
  host_rows_ = pass.rows;
  if (recording_ == nullptr) {
    HAY_CUDA(cudaEventRecord(slabs_[slab_].done, stream_));
    slab_ = (slab_ + 1) % static_cast<int>(std::size(slabs_));
    HAY_CUDA(cudaEventSynchronize(slabs_[slab_].done));
    slabs_[slab_].used = 0;
  }
  DevicePass& out = device_pass_;
  out = {};
  out.n_rows = static_cast<int32_t>(pass.rows.size());
  split_pass(pass);
  split_sequences(pass, sequences_, cells_);
  for (const SeqView& seq : pass.seqs) {
    out.n_groups = std::max(out.n_groups, seq.n_groups);
    out.max_blocks = std::max(out.max_blocks, seq.n_blocks);
  }
  if (pass.n_blocks > 0) {
    HAY_CHECK(out.max_blocks <= pass.n_blocks);
    out.max_blocks = pass.n_blocks;
    out.max_pos = pass.n_blocks * kBlockTokens - 1;
  }
  const size_t groups = static_cast<size_t>(out.n_groups), blocks = static_cast<size_t>(out.max_blocks);
  out.n_tiles = static_cast<int32_t>(tiles_.size());
  out.n_wide_tiles = static_cast<int32_t>(wide_tiles_.size());
  out.n_items = static_cast<int32_t>(split_items_.size());
  out.n_split_rows = static_cast<int32_t>(split_rows_.size());
  out.n_sequences = static_cast<int32_t>(sequences_.size());
  const size_t table_bytes = pass.seqs.size() * groups * blocks * sizeof(int32_t);
  const size_t bytes[] = {pass.rows.size_bytes(),
                          tiles_.size() * sizeof(RowTile),
                          split_items_.size() * sizeof(SplitItem),
                          split_rows_.size() * sizeof(int32_t),
                          wide_tiles_.size() * sizeof(RowTile),
                          sequences_.size() * sizeof(SequenceSpans),
                          cells_.size() * sizeof(ChunkCell),
                          table_bytes};
  size_t total = 0;
  for (const size_t n : bytes) total += aligned(n);
  char* to = static_cast<char*>(arena_->allocate(total));
  char* const from = recording_ == nullptr ? pinned(total) : nullptr;
  size_t at = 0;
  const auto piece = [&](size_t i, const void* data) {
    if (from != nullptr && bytes[i] > 0) std::memcpy(from + at, data, bytes[i]);
    const void* place = to + at;
    at += aligned(bytes[i]);
    return place;
  };
  out.rows = static_cast<const Row*>(piece(0, pass.rows.data()));
  out.tiles = static_cast<const RowTile*>(piece(1, tiles_.data()));
  out.items = static_cast<const SplitItem*>(piece(2, split_items_.data()));
  out.split_rows = static_cast<const int32_t*>(piece(3, split_rows_.data()));
  out.wide_tiles = static_cast<const RowTile*>(piece(4, wide_tiles_.data()));
  out.sequences = static_cast<const SequenceSpans*>(piece(5, sequences_.data()));
  out.cells = static_cast<const ChunkCell*>(piece(6, cells_.data()));
  out.tables = reinterpret_cast<const int32_t*>(to + at);
  if (from == nullptr) return;  // a recording's uploads are made before each run of it
  auto* tables = reinterpret_cast<int32_t*>(from + at);
  for (const SeqView& seq : pass.seqs) {
    for (size_t g = 0; g < groups; ++g, tables += blocks) {
      const auto n = static_cast<size_t>(static_cast<int32_t>(g) < seq.n_groups ? seq.n_blocks : 0);
      if (n > 0) std::copy_n(seq.blocks[g], n, tables);
      std::fill(tables + n, tables + blocks, -1);
    }
  }
  HAY_CUDA(cudaMemcpyAsync(to, from, total, cudaMemcpyHostToDevice, stream_));
}

}  // namespace hayfork::engine::cuda
