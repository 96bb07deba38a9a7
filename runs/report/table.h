// Tables as every verb prints them (-o table|md|csv|json|jsonl|latex). Cells hold values; people's formats round and
// scale them by the column's type, machines' formats give them whole. Text in cells may be anything a model wrote:
// control characters, markup, formulas and LaTeX are escaped by each format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace hayfork::runs {

enum class Format { table, md, csv, json, jsonl, latex };
Format parse_format(std::string_view name);  // Throws: usage, listing them

enum class Align { left, right, center };
enum class CellType {
  text,
  integer,   // people: thin grouping from 10 000 on
  real,      // people: `digits` decimals
  percent,   // people: value × 100, `digits` decimals, "%"
  bytes,     // people: "1.3 GiB"
  duration,  // seconds; people: "1m12s"
  boolean,   // people: yes, no
  json,      // text that is JSON: nested in json and jsonl
};

// Unknown (NULL) is monostate: blank for people and in CSV, null in JSON.
using Cell = std::variant<std::monostate, bool, int64_t, double, std::string>;

struct Column {
  std::string name;  // the key in json and the header of csv
  Align align = Align::left;
  CellType type = CellType::text;
  int digits = 4;
  std::string title = {};  // header for people; empty: the name
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  // each as long as columns
};

struct Section {
  std::string name;  // key in json: "runs"
  Table table;
  bool record = false;                  // a single row, shown as "name  value" lines and as an object in json
  std::string title = {};               // a line above, for people
  std::vector<std::string> notes = {};  // lines below, for people
};

// One verb's answer. json: {"schema":"hayfork/<verb>/1", "<section>":[{...}], ...}; jsonl: one object a row with
// "schema" first and, when there are several sections, "section"; csv of several sections: blocks parted by a blank
// line.
struct Document {
  std::string verb;
  std::vector<Section> sections;
};

std::string render(const Document& document, Format format);
std::string render(std::string verb, std::string section, Table table, Format format);  // one section

// One cell as people see it, before any escaping.
std::string display(const Cell& cell, const Column& column);

// Escapes used above; also for text that is printed outside a table.
std::string csv_field(std::string_view text);  // RFC 4180, and a leading = + - @ TAB CR gets an apostrophe
std::string latex_text(std::string_view text);
std::string terminal_line(std::string_view text);  // printable() on one line: line feeds and tabs shown as \n and \t
int display_width(std::string_view text);          // columns on a terminal: wide characters 2, combining ones 0

}  // namespace hayfork::runs
