#include "runs/report/cross_table_timings.h"

namespace hayfork::runs {
namespace {

using Timing = LayoutColumn::Timing;

// What one request of n_prompt and n_gen tokens took, in seconds: from one row that timed both, or from the two rows
// that `hayfork bench` stores (the prompt alone; generation behind it, at that depth).
struct Timed {
  std::optional<double> ttft, decode, end_to_end;
  int64_t reps = 0;
};

Timed timed(const std::vector<BenchRow>& rows, const LayoutColumn& column) {
  Timed out;
  for (const BenchRow& row : rows) {
    if (row.batch != column.batch || !(row.tps_mean > 0)) continue;
    const double seconds = static_cast<double>(row.batch) * static_cast<double>(row.n_gen) / row.tps_mean;
    const bool fresh = row.depth == column.depth;
    if (fresh && row.n_prompt == column.n_prompt && row.n_gen == column.n_gen && row.n_prompt > 0) {
      out.ttft = row.ttft_ms ? std::optional(*row.ttft_ms / 1000) : std::nullopt;
      out.end_to_end = seconds;
      out.reps = row.reps;
      return out;
    }
    if (fresh && row.n_prompt == column.n_prompt && row.n_gen == 0 && row.ttft_ms) {
      out.ttft = *row.ttft_ms / 1000;
      out.reps = row.reps;
    }
    if (row.n_prompt == 0 && row.n_gen == column.n_gen && row.depth == column.depth + column.n_prompt)
      out.decode = seconds;
  }
  if (out.ttft && out.decode) out.end_to_end = *out.ttft + *out.decode;
  return out;
}

std::optional<double> timing_of(const Timed& what, const LayoutColumn& column) {
  const auto batch = static_cast<double>(column.batch), n_gen = static_cast<double>(column.n_gen);
  switch (column.timing) {
    case Timing::ttft:
      return what.ttft;
    case Timing::end_to_end:
      return what.end_to_end;
    case Timing::output:
      return what.end_to_end ? std::optional(batch * n_gen / *what.end_to_end) : std::nullopt;
    case Timing::decode:
      if (!what.ttft || !what.end_to_end || *what.end_to_end <= *what.ttft) return std::nullopt;
      return batch * (n_gen - 1) / (*what.end_to_end - *what.ttft);
    case Timing::speedup:
    case Timing::none:
      break;
  }
  return std::nullopt;
}

// Generation alone, at a depth, whatever its length.
const BenchRow* decode_row(const std::vector<BenchRow>& rows, const LayoutColumn& column) {
  for (const BenchRow& row : rows) {
    if (row.n_prompt == 0 && row.n_gen > 0 && row.batch == column.batch && row.depth == column.depth) return &row;
  }
  return nullptr;
}

}  // namespace

CrossCell timing_cell(Store& store, const CrossSource& source, const LayoutColumn& column) {
  CrossCell cell;
  for (const RunView& run : source.runs) {
    const std::vector<BenchRow> rows = store.bench(run.run.id);
    if (column.n_prompt > 0) {
      const Timed what = timed(rows, column);
      cell.value = timing_of(what, column);
      cell.n = what.reps;
    } else if (const BenchRow* row = decode_row(rows, column)) {
      cell.value = row->tps_mean;
      cell.n = row->reps;
    }
    if (!cell.value) continue;
    cell.run_id = run.run.run_id;
    return cell;
  }
  return cell;
}

void divide_by_first(CrossTable& table) {
  for (size_t c = 0; c < table.columns.size(); ++c) {
    if (table.columns[c].timing != Timing::speedup || table.rows.empty()) continue;
    const OptReal first = table.rows[0].cells[c].value;
    for (CrossRow& row : table.rows) {
      OptReal& value = row.cells[c].value;
      value = first && *first > 0 && value ? OptReal(*value / *first) : OptReal();
    }
  }
}

}  // namespace hayfork::runs
