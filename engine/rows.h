// Rows: what one forward pass computes. Chunked prefill, decode, continuation scoring, Orthros pairs and sparse
// perplexity are all lists of rows; nothing is padded. Only the scheduler makes rows; models, mixers and kernels read
// them.
#pragma once

#include <cstdint>
#include <span>

namespace hayfork::engine {

// Orthros (arXiv 2610.13735, section 1): base rows write K/V and see a window; output rows see all base K/V and write
// nothing. Every other model has base rows only, and its logits come from them.
enum class Stream : uint8_t { base, output };

// Belongs to the request, never to a count: decode rows carry tokens this request generated (and teacher-
// forced tokens under sparse decode); everything else is prefill. Kernels may be chosen by kind, never by how many.
enum class RowKind : uint8_t { prefill, decode };

struct Row {
  int32_t token;  // on devices with a queue ~s stands for the arg max of the pass before at slot s
  int32_t pos;  // absolute position in the sequence; −1: fills up a pass of a fixed shape, computes and writes nothing
  int32_t seq;  // index into Pass::seqs
  Stream stream;
  RowKind kind;
  int32_t want;  // −1, or the slot of this row's hidden state in the result
};

// One sequence of a pass: where its keys, values and states are.
struct SeqView {
  const int32_t* const* blocks;  // [n_groups][…]: block tables, one per window group of the cache (KvLayer::group);
                                 // entry i holds positions i·kBlockTokens …; −1 = freed, behind the window
  int32_t state_slot;            // recurrent state of this sequence, −1 when the model has none
  int32_t rope_tokens;           // planned total length n of the request: rope kinds whose table depends on
                                 // length use it
  int32_t id;                    // the cache's SeqId, for mixers that keep more than the views above show
  int32_t n_groups;              // block tables in `blocks`
  int32_t n_blocks;              // entries in each
};

struct Pass {
  std::span<const Row> rows;  // sorted by kind, stream (base first), seq, pos
  std::span<const SeqView> seqs;
  int32_t n_want = 0;    // slots 0 … n_want−1, each wanted by exactly one row
  int32_t n_blocks = 0;  // > 0: the shape of the pass is that of sequences of so many blocks, and none is longer
};

// Maximal stretches of rows of one kind and stream: at most four, in order.
struct RowGroup {
  RowKind kind;
  Stream stream;
  int32_t begin, end;  // row indices
};
struct RowGroups {
  RowGroup group[4];
  int32_t n = 0;
  const RowGroup* begin() const { return group; }
  const RowGroup* end() const { return group + n; }
};
inline RowGroups row_groups(std::span<const Row> rows) {
  RowGroups groups;
  for (int32_t i = 0; i < static_cast<int32_t>(rows.size()); ++i) {
    const Row& row = rows[static_cast<size_t>(i)];
    if (groups.n == 0 || groups.group[groups.n - 1].kind != row.kind ||
        groups.group[groups.n - 1].stream != row.stream) {
      groups.group[groups.n++] = {row.kind, row.stream, i, i};
    }
    groups.group[groups.n - 1].end = i + 1;
  }
  return groups;
}

}  // namespace hayfork::engine
