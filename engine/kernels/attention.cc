#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "engine/kernels/attention_block.h"
#include "engine/kernels/scratch.h"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cpu {
namespace {

constexpr int64_t kSmallCost = 200;  // queries × tiles below which a second thread costs more than it saves

int64_t cost(const AttentionCall& call, const QueryBlock& b) {
  return (b.end - b.begin) * call.heads() * (b.last / kBlockTokens - b.first / kBlockTokens + 1);
}

int64_t first_segment(const QueryBlock& b) {
  return b.first / kSegment;
}
int64_t last_segment(const QueryBlock& b) {
  return b.last / kSegment;
}

void add_blocks(const AttentionCall& call, int64_t begin, int64_t end, std::vector<QueryBlock>& blocks) {
  const auto& rows = call.pass.rows;
  const AttentionParams& params = call.params;
  const int64_t most = call.rows_a_block(), n = (end - begin + most - 1) / most;
  for (int64_t head = 0; head < call.layer.n_kv_heads; ++head) {
    int64_t window =
        rows[static_cast<size_t>(begin)].stream == Stream::base ? params.window_base : params.window_output;
    if (!params.kv_head_windows.empty()) window = params.kv_head_windows[static_cast<size_t>(head)];
    for (int64_t i = 0; i < n; ++i) {
      QueryBlock b{begin + (end - begin) * i / n, begin + (end - begin) * (i + 1) / n, head, window, 0, 0};
      b.last = rows[static_cast<size_t>(b.end - 1)].pos;
      if (window > 0) b.first = std::max<int64_t>(rows[static_cast<size_t>(b.begin)].pos - window + 1, 0);
      blocks.push_back(b);
    }
  }
}

// Blocks of neighbouring rows of one sequence and stream whose positions ascend.
std::vector<QueryBlock> plan(const AttentionCall& call) {
  std::vector<QueryBlock> blocks;
  const auto& rows = call.pass.rows;
  for (size_t begin = 0; begin < rows.size();) {
    size_t end = begin + 1;
    while (end < rows.size() && rows[end].seq == rows[begin].seq && rows[end].stream == rows[begin].stream &&
           rows[end].pos > rows[end - 1].pos) {
      ++end;
    }
    add_blocks(call, static_cast<int64_t>(begin), static_cast<int64_t>(end), blocks);
    begin = end;
  }
  return blocks;
}

// Each thread takes neighbouring blocks of about equal cost and walks their segments in order.
void run_blocks(Context& context, const AttentionCall& call, const std::vector<QueryBlock>& blocks, int64_t total_cost,
                int64_t threads) {
  const size_t partial = call.partial_bytes(), each = call.worker_bytes() + 2 * partial;
  auto* memory = static_cast<char*>(scratch(context, each * static_cast<size_t>(threads)));
  parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
    char* mine = memory + each * static_cast<size_t>(begin);
    BlockWorker worker(call, mine + 2 * partial);
    PartialOutput total = call.partial_at(mine), next = call.partial_at(mine + partial);
    int64_t before = 0;
    for (const QueryBlock& block : blocks) {
      const int64_t middle = before + cost(call, block) / 2;
      before += cost(call, block);
      const int64_t owner = std::min(middle * threads / total_cost, threads - 1);
      if (owner < begin || owner >= end) continue;
      worker.start(block);
      worker.attend(first_segment(block), total);
      for (int64_t s = first_segment(block) + 1; s <= last_segment(block); ++s) {
        worker.attend(s, next);
        merge(call, block, total, next);
      }
      finish(call, block, total);
    }
  });
}

// Few blocks, long contexts: the segments of a block are shared among threads and merged afterwards.
void run_segments(Context& context, const AttentionCall& call, const std::vector<QueryBlock>& blocks, int64_t threads) {
  struct Piece {
    size_t block;
    int64_t segment;
  };
  std::vector<Piece> pieces;
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (int64_t s = first_segment(blocks[b]); s <= last_segment(blocks[b]); ++s) pieces.push_back({b, s});
  }
  const auto n = static_cast<int64_t>(pieces.size());
  const size_t partial = call.partial_bytes(), workers = call.worker_bytes() * static_cast<size_t>(threads);
  auto* memory = static_cast<char*>(scratch(context, workers + partial * pieces.size()));
  parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
    BlockWorker worker(call, memory + call.worker_bytes() * static_cast<size_t>(begin));
    for (int64_t i = n * begin / threads; i < n * end / threads; ++i) {
      const Piece& piece = pieces[static_cast<size_t>(i)];
      worker.start(blocks[piece.block]);
      worker.attend(piece.segment, call.partial_at(memory + workers + partial * static_cast<size_t>(i)));
    }
  });
  for (size_t i = 0; i < pieces.size();) {
    const QueryBlock& block = blocks[pieces[i].block];
    const PartialOutput total = call.partial_at(memory + workers + partial * i);
    size_t j = i + 1;
    for (; j < pieces.size() && pieces[j].block == pieces[i].block; ++j) {
      merge(call, block, total, call.partial_at(memory + workers + partial * j));
    }
    finish(call, block, total);
    i = j;
  }
}

}  // namespace

void require_attention(const Context& /*context*/, int32_t /*v_dim*/, int32_t /*n_kv_head_windows*/) {}

void attention(Context& context, const Pass& pass, Matrix o, Matrix q, const KvLayer& layer,
               const AttentionParams& params) {
  HAY_CHECK(params.n_heads >= 1 && layer.n_kv_heads >= 1 && params.n_heads % layer.n_kv_heads == 0);
  HAY_CHECK(q.rows == static_cast<int64_t>(pass.rows.size()) && o.rows == q.rows);
  HAY_CHECK(q.cols == int64_t{params.n_heads} * layer.k_dim && o.cols == int64_t{params.n_heads} * layer.v_dim);
  HAY_CHECK(!params.sinks || params.sinks.size == params.n_heads);
  HAY_CHECK(params.kv_head_windows.empty() || params.kv_head_windows.size() == static_cast<size_t>(layer.n_kv_heads));
  const AttentionCall call{pass, o, q, layer, params};
  const std::vector<QueryBlock> blocks = plan(call);
  int64_t total_cost = 0;
  bool long_context = false;
  for (const QueryBlock& b : blocks) {
    total_cost += cost(call, b);
    long_context = long_context || last_segment(b) > first_segment(b);
  }
  if (blocks.empty()) return;
  const int64_t threads = total_cost < kSmallCost ? 1 : current_threads();
  if (threads > 1 && long_context && static_cast<int64_t>(blocks.size()) < 2 * threads) {
    run_segments(context, call, blocks, threads);
  } else {
    run_blocks(context, call, blocks, total_cost, threads);
  }
}

}  // namespace hayfork::engine::cpu
