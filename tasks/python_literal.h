// Lists, dictionaries, texts and numbers written as Python writes them (ast.literal_eval): some data sets and task
// files keep structures that way.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "tasks/doc_fields.h"

namespace hayfork::tasks {

// Nothing when the text is no literal of these kinds. Tuples become lists; True, False and None are known.
std::optional<nlohmann::ordered_json> python_literal(std::string_view text);
// Throws: corrupt (data) naming the row.
nlohmann::ordered_json parse_python_literal(std::string_view text, const Fields& row);

}  // namespace hayfork::tasks
