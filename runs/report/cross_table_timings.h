// Cells of a cross table that are times: from the rows that `hayfork bench --save` stores.
#pragma once

#include "runs/report/cross_table.h"

namespace hayfork::runs {

// The newest run of the source that timed what the column asks for; empty where none did. Not for speed-ups.
CrossCell timing_cell(Store& store, const CrossSource& source, const LayoutColumn& column);
// Fills columns of speed-ups: end to end, to the first row.
void divide_by_first(CrossTable& table);

}  // namespace hayfork::runs
