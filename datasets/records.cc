#include "datasets/records.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/json.h"
#include "datasets/byte_source.h"
#include "datasets/gzip.h"

namespace hayfork::datasets {
namespace {

using nlohmann::ordered_json;

Record parse_line(std::string line, const std::string& name, int64_t number, uint64_t offset) {
  Record record{.value = nullptr, .line = number, .fault = {}};
  const std::string where = fmt::format("{}, line {}", name, number);
  try {
    check_text(line, InvalidUtf8::error, where, offset);
    auto value = std::make_shared<ordered_json>(parse_ordered_json(line, where, ErrorSubject::data));
    if (value->is_object()) {
      record.value = std::move(value);
    } else {
      record.fault = fmt::format("a row is no JSON object ({}; it is of type {})", where, value->type_name());
    }
  } catch (const Error& error) {  // this row's fault, not the file's
    record.fault = error.what();
  }
  return record;
}

}  // namespace

std::string Records::where(size_t row) const {
  return fmt::format("{}, line {}", name, rows.at(row).line);
}

Records parse_records(std::string_view text, const std::string& name) {
  Records records{.name = name, .sha256 = sha256_hex(text), .rows = {}};
  ByteSource source = ByteSource::from_text(text, name);
  std::string_view rest = source.available();  // refuses UTF-16, skips the mark
  uint64_t offset = source.offset();
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    const size_t used = std::min(end + 1, rest.size());
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos)
      records.rows.push_back(parse_line(std::string(line), name, number, offset));
    rest.remove_prefix(used);
    offset += used;
  }
  if (records.rows.empty())
    throw Error(ErrorCode::corrupt, ErrorSubject::data, "a data file holds no rows", {.where = name});
  return records;
}

std::shared_ptr<const Records> load_records(const std::filesystem::path& path) {
  return std::make_shared<Records>(parse_records(read_data_file(path), path.string()));
}

}  // namespace hayfork::datasets
