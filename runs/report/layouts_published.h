// For layouts.cc alone: the published rows of each table.
#pragma once

#include <vector>

#include "runs/report/layouts.h"

namespace hayfork::runs {

std::vector<PublishedRow> published_orthros_table1();
std::vector<PublishedRow> published_orthros_table2();
std::vector<PublishedRow> published_orthros_table3();
std::vector<PublishedRow> published_orthros_table4();
std::vector<PublishedRow> published_orthros_table7();
std::vector<PublishedRow> published_hybrid_table12();
std::vector<PublishedRow> published_hybrid_table13();
std::vector<PublishedRow> published_sparse_table4();

}  // namespace hayfork::runs
