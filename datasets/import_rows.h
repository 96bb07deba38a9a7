// Shared by the importers: one upstream row in, the rows of Hugging Face's copy out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace hayfork::datasets {

using Rows = std::vector<nlohmann::ordered_json>;

// The rows that `row` becomes; `row` itself when it has that form already or none that is known.
Rows hf_rows(const std::string& set, const nlohmann::ordered_json& row);

// The `doc` of an OLMES request.
nlohmann::ordered_json hf_row_of_olmes(const std::string& set, const nlohmann::ordered_json& doc);

// "high_school_physics" of "high_school_physics_test.csv".
std::string subject_of(std::string_view file_stem);

bool is_set(const std::string& set, std::string_view family);  // "mmlu" or "mmlu_…"

}  // namespace hayfork::datasets
