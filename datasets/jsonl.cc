#include "datasets/jsonl.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace hayfork::datasets {

JsonlReader::JsonlReader(const std::filesystem::path& path, JsonlOptions options)
    : source_(ByteSource::open(path)), options_(options) {}

JsonlReader::JsonlReader(std::string_view text, std::string name, JsonlOptions options)
    : source_(ByteSource::from_text(text, std::move(name))), options_(options) {}

std::string JsonlReader::where() const {
  return fmt::format("{}, line {}", source_.name(), line_);
}

// A line without its end; false when nothing is left.
bool JsonlReader::read_line(std::string& line) {
  line.clear();
  std::string_view block = source_.available();
  if (block.empty()) return false;
  offset_ = source_.offset();
  ++line_;
  for (; !block.empty(); block = source_.available()) {
    const size_t end = block.find('\n');
    const bool ends = end != std::string_view::npos;
    const std::string_view part = block.substr(0, ends ? end : block.size());
    if (line.size() + part.size() > options_.max_line_bytes) {
      throw Error(ErrorCode::corrupt, ErrorSubject::data, "a line of a data file is too long",
                  {.where = where(), .why = fmt::format("more than {} bytes", options_.max_line_bytes)});
    }
    line += part;
    source_.consume(part.size() + (ends ? 1 : 0));
    if (ends) break;
  }
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

bool JsonlReader::next(nlohmann::ordered_json& value) {
  std::string line;
  do {
    if (!read_line(line)) return false;
  } while (line.find_first_not_of(" \t\r") == std::string::npos);
  check_text(line, options_.invalid_utf8, where(), offset_);
  value = parse_ordered_json(line, where(), ErrorSubject::data,
                             {.max_depth = options_.max_depth,
                              .python_literals = options_.python_literals,
                              .unique_keys = options_.duplicate_keys == DuplicateKeys::error});
  if (options_.objects_only && !value.is_object()) {
    throw Error(ErrorCode::corrupt, ErrorSubject::data, "a line of a data file is no JSON object",
                {.where = where(), .why = fmt::format("it is of type {}", value.type_name())});
  }
  return true;
}

}  // namespace hayfork::datasets
