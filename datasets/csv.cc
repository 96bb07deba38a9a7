#include "datasets/csv.h"

#include <set>

#include <fmt/format.h>

namespace hayfork::datasets {

CsvReader::CsvReader(const std::filesystem::path& path, CsvOptions options)
    : source_(ByteSource::open(path)), options_(options) {
  start();
}

CsvReader::CsvReader(std::string_view text, std::string name, CsvOptions options)
    : source_(ByteSource::from_text(text, std::move(name))), options_(options) {
  start();
}

void CsvReader::start() {
  if (!options_.header) return;
  if (!next(header_)) fail("a CSV file has no header", "it has no row at all", 1);
  std::set<std::string> seen;
  for (const std::string& name : header_) {
    if (!seen.insert(name).second)
      fail("a CSV file names a column twice", fmt::format("\"{}\"", name.substr(0, 80)), row_line_);
  }
}

std::string CsvReader::where() const {
  return fmt::format("{}, line {}", source_.name(), row_line_);
}

void CsvReader::fail(const std::string& what, const std::string& why, int64_t line) const {
  throw Error(ErrorCode::corrupt, ErrorSubject::data, what,
              {.where = fmt::format("{}, line {}", source_.name(), line), .why = why});
}

int CsvReader::peek() {
  const std::string_view block = source_.available();
  return block.empty() ? -1 : static_cast<unsigned char>(block[0]);
}

// Counts lines: CRLF is one, at its LF.
int CsvReader::take() {
  const int c = peek();
  if (c < 0) return c;
  source_.consume(1);
  if (c == '\n' || (c == '\r' && peek() != '\n')) ++line_;
  return c;
}

void CsvReader::skip_blank_lines() {
  while (peek() == '\n' || peek() == '\r') take();
}

bool CsvReader::next(std::vector<std::string>& row) {
  if (!read_row(row)) return false;
  if (n_fields_ == 0) n_fields_ = row.size();
  if (row.size() != n_fields_) {
    fail("a row of a CSV file has the wrong length",
         fmt::format("it has {} fields, the first row {}", row.size(), n_fields_), row_line_);
  }
  return true;
}

bool CsvReader::read_row(std::vector<std::string>& row) {
  row.clear();
  skip_blank_lines();
  row_line_ = line_;
  if (peek() < 0) return false;
  for (;;) {
    if (row.size() == options_.max_fields)
      fail("a row of a CSV file has too many fields", fmt::format("more than {}", options_.max_fields), row_line_);
    read_field(row);
    const int end = take();
    if (end == static_cast<unsigned char>(options_.delimiter)) continue;
    if (end == '\r' && peek() == '\n') take();
    return true;
  }
}

// A field, up to but without what ends it.
void CsvReader::read_field(std::vector<std::string>& row) {
  const int64_t line = line_;
  const uint64_t offset = source_.offset();
  std::string field;
  if (peek() == '"') {
    read_quoted(field);
  } else {
    // A quote inside a field that began without one is text, as every reader takes it.
    for (int c = peek(); c >= 0 && c != static_cast<unsigned char>(options_.delimiter) && c != '\n' && c != '\r';
         c = peek()) {
      if (field.size() == options_.max_field_bytes)
        fail("a field of a CSV file is too long", fmt::format("more than {} bytes", options_.max_field_bytes), line);
      field += static_cast<char>(take());
    }
  }
  check_text(field, options_.invalid_utf8, fmt::format("{}, line {}", source_.name(), line), offset);
  row.push_back(std::move(field));
}

void CsvReader::read_quoted(std::string& field) {
  const int64_t line = line_;
  take();
  for (;;) {
    const int c = take();
    if (c < 0) fail("a quoted field of a CSV file does not end", fmt::format("the quote opens on line {}", line), line);
    if (c == '"') {
      if (peek() != '"') break;
      take();
    }
    if (field.size() == options_.max_field_bytes)
      fail("a field of a CSV file is too long", fmt::format("more than {} bytes", options_.max_field_bytes), line);
    field += static_cast<char>(c);
  }
  const int after = peek();
  if (after >= 0 && after != static_cast<unsigned char>(options_.delimiter) && after != '\n' && after != '\r') {
    fail("text stands behind the closing quote of a CSV field", "a quote inside a quoted field is written twice",
         line_);
  }
}

}  // namespace hayfork::datasets
