#include "runs/report/table.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/units.h"
#include "base/utf8.h"
#include "runs/report/table_text.h"

namespace hayfork::runs {
namespace {

using nlohmann::ordered_json;

constexpr int kMaxCellWidth = 60;  // a longer text is cut with … on terminals; other formats give it whole

std::string number_text(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : value > 0 ? "inf" : value < 0 ? "-inf" : "nan";
}

// For csv: whole values, shortest forms that read back equal.
std::string raw_text(const Cell& cell) {
  if (const auto* flag = std::get_if<bool>(&cell)) return *flag ? "1" : "0";
  if (const auto* integer = std::get_if<int64_t>(&cell)) return std::to_string(*integer);
  if (const auto* real = std::get_if<double>(&cell)) return number_text(*real);
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  return "";
}

ordered_json json_cell(const Cell& cell, const Column& column) {
  if (const auto* flag = std::get_if<bool>(&cell)) return *flag;
  if (const auto* integer = std::get_if<int64_t>(&cell)) return *integer;
  if (const auto* real = std::get_if<double>(&cell))
    return std::isfinite(*real) ? ordered_json(*real) : ordered_json(nullptr);
  const auto* text = std::get_if<std::string>(&cell);
  if (text == nullptr) return nullptr;
  if (column.type == CellType::json) {
    const ordered_json parsed = ordered_json::parse(*text, nullptr, false);
    if (!parsed.is_discarded()) return parsed;
  }
  return replace_invalid_utf8(*text);
}

ordered_json json_row(const Table& table, const std::vector<Cell>& row, ordered_json object) {
  for (size_t c = 0; c < table.columns.size(); ++c) object[table.columns[c].name] = json_cell(row[c], table.columns[c]);
  return object;
}

std::string dump(const ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string render_json(const Document& document) {
  ordered_json out;
  out["schema"] = "hayfork/" + document.verb + "/1";
  for (const Section& section : document.sections) {
    if (section.record && section.table.rows.size() == 1) {
      out[section.name] = json_row(section.table, section.table.rows.front(), ordered_json::object());
      continue;
    }
    ordered_json& rows = out[section.name] = ordered_json::array();
    for (const auto& row : section.table.rows) rows.push_back(json_row(section.table, row, ordered_json::object()));
  }
  return dump(out, 2);
}

std::string render_jsonl(const Document& document) {
  std::string out;
  for (const Section& section : document.sections) {
    for (const auto& row : section.table.rows) {
      ordered_json object;
      object["schema"] = "hayfork/" + document.verb + "/1";
      if (document.sections.size() > 1) object["section"] = section.name;
      out += dump(json_row(section.table, row, std::move(object)), -1);
    }
  }
  return out;
}

std::string render_csv(const Document& document) {
  std::string out;
  for (const Section& section : document.sections) {
    if (!out.empty()) out += "\r\n";
    const auto line = [&](const auto& text_of) {
      for (size_t c = 0; c < section.table.columns.size(); ++c) out += (c == 0 ? "" : ",") + text_of(c);
      out += "\r\n";  // RFC 4180
    };
    line([&](size_t c) { return csv_field(section.table.columns[c].name); });
    for (const auto& row : section.table.rows) {
      line([&](size_t c) {
        // Numbers are ours: a leading minus is no formula.
        return std::holds_alternative<std::string>(row[c]) ? csv_field(std::get<std::string>(row[c]))
                                                           : raw_text(row[c]);
      });
    }
  }
  return out;
}

Align align_of(const Column& column) {
  const bool number =
      column.type != CellType::text && column.type != CellType::boolean && column.type != CellType::json;
  return column.align == Align::left && number ? Align::right : column.align;
}

std::string title_of(const Column& column) {
  return column.title.empty() ? column.name : column.title;
}

std::string padded(const std::string& text, int width, Align align) {
  const int room = std::max(0, width - display_width(text));
  const int left = align == Align::left ? 0 : align == Align::right ? room : room / 2;
  return std::string(static_cast<size_t>(left), ' ') + text + std::string(static_cast<size_t>(room - left), ' ');
}

std::string cut(const std::string& text, int width) {
  if (display_width(text) <= width) return text;
  std::string out;
  int used = 0;
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decode_utf8(text, i);
    const std::string piece = text.substr(i, static_cast<size_t>(c.length));
    used += display_width(piece);
    if (used > width - 1) break;
    out += piece;
    i += static_cast<size_t>(c.length);
  }
  return out + "…";
}

using Grid = std::vector<std::vector<std::string>>;

std::vector<int> widths_of(const Grid& grid) {
  std::vector<int> widths;
  for (const auto& row : grid) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], display_width(row[c]));
  }
  return widths;
}

std::string render_record(const Table& table) {
  Grid grid;
  for (size_t c = 0; c < table.columns.size(); ++c) {
    if (std::holds_alternative<std::monostate>(table.rows.front()[c])) continue;  // unknown: nothing to read
    grid.push_back(
        {terminal_line(title_of(table.columns[c])), terminal_line(display(table.rows.front()[c], table.columns[c]))});
  }
  std::string out;
  const std::vector<int> widths = widths_of(grid);
  for (const auto& row : grid) out += padded(row[0], widths[0], Align::left) + "  " + row[1] + "\n";
  return out;
}

std::string render_grid(const Table& table) {
  Grid grid(1);
  for (const Column& column : table.columns)
    grid.front().push_back(cut(terminal_line(title_of(column)), kMaxCellWidth));
  for (const auto& row : table.rows) {
    auto& line = grid.emplace_back();
    for (size_t c = 0; c < row.size(); ++c) {
      line.push_back(cut(terminal_line(display(row[c], table.columns[c])), kMaxCellWidth));
    }
  }
  const std::vector<int> widths = widths_of(grid);
  std::string out;
  for (const auto& row : grid) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c)
      line += (c == 0 ? "" : "  ") + padded(row[c], widths[c], align_of(table.columns[c]));
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string render_table(const Document& document) {
  std::string out;
  for (const Section& section : document.sections) {
    if (!out.empty()) out += "\n";
    if (!section.title.empty()) out += terminal_line(section.title) + "\n";
    out += section.record && section.table.rows.size() == 1 ? render_record(section.table) : render_grid(section.table);
    for (const std::string& note : section.notes) out += terminal_line(note) + "\n";
  }
  return out;
}

std::string render_md(const Document& document) {
  std::string out;
  for (const Section& section : document.sections) {
    if (!out.empty()) out += "\n";
    if (!section.title.empty()) out += "**" + md_text(section.title) + "**\n\n";
    Grid grid(1);
    for (const Column& column : section.table.columns) grid.front().push_back(md_text(title_of(column)));
    for (const auto& row : section.table.rows) {
      auto& line = grid.emplace_back();
      for (size_t c = 0; c < row.size(); ++c) line.push_back(md_text(display(row[c], section.table.columns[c])));
    }
    std::vector<int> widths = widths_of(grid);
    for (int& width : widths) width = std::max(width, 3);
    for (size_t r = 0; r < grid.size(); ++r) {
      for (size_t c = 0; c < grid[r].size(); ++c) {
        out += "| " + padded(grid[r][c], widths[c], align_of(section.table.columns[c])) + " ";
      }
      out += "|\n";
      if (r > 0) continue;
      for (size_t c = 0; c < widths.size(); ++c) {
        const Align align = align_of(section.table.columns[c]);
        std::string rule(static_cast<size_t>(widths[c]) + 2, '-');
        if (align != Align::left) rule.back() = ':';
        if (align == Align::center) rule.front() = ':';
        out += "|" + rule;
      }
      out += "|\n";
    }
    for (const std::string& note : section.notes) out += "\n" + md_text(note) + "\n";
  }
  return out;
}

std::string render_latex(const Document& document) {
  std::string out;
  for (const Section& section : document.sections) {
    if (!out.empty()) out += "\n";
    if (!section.title.empty()) out += "% " + one_line(section.title) + "\n";
    out += "\\begin{tabular}{";
    for (const Column& column : section.table.columns) {
      out += align_of(column) == Align::left ? 'l' : align_of(column) == Align::right ? 'r' : 'c';
    }
    out += "}\n\\hline\n";
    const auto line = [&](const auto& text_of) {
      for (size_t c = 0; c < section.table.columns.size(); ++c) out += (c == 0 ? "" : " & ") + latex_text(text_of(c));
      out += " \\\\\n";
    };
    line([&](size_t c) { return title_of(section.table.columns[c]); });
    out += "\\hline\n";
    for (const auto& row : section.table.rows) {
      line([&](size_t c) { return display(row[c], section.table.columns[c]); });
    }
    out += "\\hline\n\\end{tabular}\n";
    for (const std::string& note : section.notes) out += "% " + one_line(note) + "\n";
  }
  return out;
}

double as_real(const Cell& cell) {
  if (const auto* integer = std::get_if<int64_t>(&cell)) return static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&cell)) return *real;
  return std::get<bool>(cell) ? 1 : 0;
}

std::string grouped(int64_t value) {
  return value >= 10'000 || value <= -10'000 ? format_count(value) : std::to_string(value);
}

}  // namespace

std::string display(const Cell& cell, const Column& column) {
  if (std::holds_alternative<std::monostate>(cell)) return "";
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (column.type == CellType::boolean) return as_real(cell) != 0 ? "yes" : "no";
  const double value = as_real(cell);
  if (!std::isfinite(value)) return number_text(value);
  switch (column.type) {
    case CellType::real:
      return fmt::format("{:.{}f}", value, column.digits);
    case CellType::percent:
      return fmt::format("{:.{}f}%", value * 100, column.digits);
    case CellType::bytes:
      return format_bytes(value);
    case CellType::duration:
      return format_duration(value);
    case CellType::integer:
      if (const auto* integer = std::get_if<int64_t>(&cell)) return grouped(*integer);
      return fmt::format("{:.0f}", value);
    default:
      return raw_text(cell);
  }
}

Format parse_format(std::string_view name) {
  static constexpr std::pair<std::string_view, Format> kFormats[] = {
      {"table", Format::table}, {"md", Format::md},       {"csv", Format::csv},
      {"json", Format::json},   {"jsonl", Format::jsonl}, {"latex", Format::latex}};
  for (const auto& [known, format] : kFormats) {
    if (known == name) return format;
  }
  throw Error(ErrorCode::usage, ErrorSubject::general,
              fmt::format("--output: no format \"{}\"", printable(name.substr(0, 40))),
              {.next = "one of table, md, csv, json, jsonl, latex"});
}

std::string render(const Document& document, Format format) {
  for (const Section& section : document.sections) {
    for (const auto& row : section.table.rows) {
      HAY_CHECK(row.size() == section.table.columns.size(), "a row of section " + section.name + " is ragged");
    }
  }
  switch (format) {
    case Format::table:
      return render_table(document);
    case Format::md:
      return render_md(document);
    case Format::csv:
      return render_csv(document);
    case Format::json:
      return render_json(document);
    case Format::jsonl:
      return render_jsonl(document);
    case Format::latex:
      return render_latex(document);
  }
  return "";
}

std::string render(std::string verb, std::string section, Table table, Format format) {
  Document document{std::move(verb), {}};
  document.sections.push_back({std::move(section), std::move(table)});
  return render(document, format);
}

}  // namespace hayfork::runs
