// Rows of the store as tables: columns, keys and CSV headers come from the rows' field tables (runs/fields.h).
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/digest.h"
#include "base/error.h"
#include "runs/fields.h"
#include "runs/report/table.h"

namespace hayfork::runs {

inline Cell to_cell(bool value) {
  return value;
}
inline Cell to_cell(int64_t value) {
  return value;
}
inline Cell to_cell(double value) {
  return value;
}
inline Cell to_cell(const std::string& value) {
  return value;
}
inline Cell to_cell(const StoredText& value) {
  return value.text;
}
inline Cell to_cell(const Blob& value) {  // lower-case hex
  return hex({reinterpret_cast<const unsigned char*>(value.bytes.data()), value.bytes.size()});
}
template <typename T>
Cell to_cell(const std::optional<T>& value) {
  return value ? to_cell(*value) : Cell{};
}

template <typename T>
constexpr CellType cell_type(const std::optional<T>*, std::string_view name);
constexpr CellType cell_type(const bool*, std::string_view) {
  return CellType::boolean;
}
constexpr CellType cell_type(const double*, std::string_view name) {
  return name == "wall_s" ? CellType::duration : CellType::real;
}
constexpr CellType cell_type(const int64_t*, std::string_view name) {
  return name.ends_with("_bytes") ? CellType::bytes : CellType::integer;
}
constexpr CellType cell_type(const std::string*, std::string_view name) {
  return name.ends_with("_json") ? CellType::json : CellType::text;
}
constexpr CellType cell_type(const StoredText*, std::string_view) {
  return CellType::text;
}
constexpr CellType cell_type(const Blob*, std::string_view) {
  return CellType::text;
}
template <typename T>
constexpr CellType cell_type(const std::optional<T>*, std::string_view name) {
  return cell_type(static_cast<const T*>(nullptr), name);
}

// All columns, or those named in `only`, in its order. Requires: every name of `only` is a column of Row.
template <typename Row>
Table table_of(std::span<const Row> rows, std::span<const std::string_view> only = {}) {
  Table all;
  for_each_field<Row>([&](const auto& f) {
    const auto* member = static_cast<const std::remove_reference_t<decltype(std::declval<Row>().*f.member)>*>(nullptr);
    all.columns.push_back({f.name, Align::left, cell_type(member, f.name)});
  });
  for (const Row& row : rows) {
    auto& cells = all.rows.emplace_back();
    for_each_field<Row>([&](const auto& f) { cells.push_back(to_cell(row.*f.member)); });
  }
  if (only.empty()) return all;
  Table chosen;
  chosen.rows.resize(all.rows.size());
  for (const std::string_view name : only) {
    const auto it =
        std::find_if(all.columns.begin(), all.columns.end(), [&](const Column& column) { return column.name == name; });
    HAY_CHECK(it != all.columns.end(), std::string(name));
    const auto c = static_cast<size_t>(it - all.columns.begin());
    chosen.columns.push_back(*it);
    for (size_t r = 0; r < all.rows.size(); ++r) chosen.rows[r].push_back(all.rows[r][c]);
  }
  return chosen;
}

template <typename Row>
Table table_of(const std::vector<Row>& rows, std::initializer_list<std::string_view> only = {}) {
  return table_of<Row>(std::span<const Row>(rows), std::span<const std::string_view>(only.begin(), only.size()));
}

}  // namespace hayfork::runs
