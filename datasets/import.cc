#include "datasets/import.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "datasets/csv.h"
#include "datasets/gzip.h"
#include "datasets/import_rows.h"
#include "datasets/records.h"

namespace hayfork::datasets {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int64_t kUnconditional = 1'000'000;  // OLMES numbers the twins without a question from here on

std::string one_line(const ordered_json& row) {
  return row.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// The file's name without .gz and its own ending, which is given back too: "a_test", ".csv".
std::pair<std::string, std::string> name_parts(fs::path path) {
  path = path.filename();
  if (path.extension() == ".gz") path = path.stem();
  return {path.stem().string(), path.extension().string()};
}

class Import {
 public:
  Import(const std::string& set, const fs::path& labels) : set_(set) {
    if (labels.empty()) return;
    std::string text = read_data_file(labels);
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      std::string line = text.substr(begin, end - begin);
      line.erase(std::remove(line.begin(), line.end(), '\r'), line.end());
      if (!line.empty()) labels_.push_back(std::move(line));
      begin = end + 1;
    }
    labels_file_ = labels.string();
  }

  Imported take(const fs::path& path) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) {
      folder(path);
    } else {
      file(path);
    }
    if (!labels_file_.empty() && n_labelled_ != labels_.size())
      throw Error(ErrorCode::corrupt, ErrorSubject::data, "labels and rows do not fit together",
                  {.where = labels_file_, .why = fmt::format("{} labels, {} rows", labels_.size(), n_labelled_)});
    if (out_.lines.empty())
      throw Error(ErrorCode::corrupt, ErrorSubject::data, "a data file holds no rows", {.where = path.string()});
    return std::move(out_);
  }

 private:
  void folder(const fs::path& path) {
    const bool race = is_set(set_, "race");
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path)) {
      const std::string ending = name_parts(entry.path()).second;
      if (race ? ending == ".txt" : ending == ".csv") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    if (files.empty())
      throw Error(ErrorCode::not_found, ErrorSubject::data, "the folder holds no files of this data set",
                  {.where = path.string(), .why = race ? "want *.txt" : "want *.csv"});
    for (const fs::path& one : files) file(one);
  }

  void file(const fs::path& path) {
    const auto [stem, ending] = name_parts(path);
    const std::string text = read_data_file(path);
    if (ending == ".csv" || ending == ".tsv") return csv(text, path, stem, ending == ".tsv");
    if (is_set(set_, "race") && ending == ".txt") return race(text, path);
    if (const size_t first = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
        first != std::string::npos && text[first] == '[')
      return list(text, path.string());
    lines(text, path.string());
  }

  // `line`: the row as it was written, which is kept when nothing is changed.
  void add(const ordered_json& row, const std::string& where, const std::string& line = {}) {
    ordered_json labelled = row;
    if (!labels_.empty()) {
      if (n_labelled_ < labels_.size()) set_label(labelled, labels_[n_labelled_]);
      ++n_labelled_;
    }
    const Rows rows = hf_rows(set_, labelled);
    if (rows.empty()) out_.faults.push_back(fmt::format("the row holds no question ({})", where));
    const bool unchanged = !line.empty() && rows.size() == 1 && rows[0] == row;
    for (const ordered_json& one : rows) keep(unchanged ? line : one_line(one), where);
  }

  void keep(std::string line, const std::string& where) {
    out_.lines.push_back(std::move(line));
    out_.where.push_back(where);
  }

  void set_label(ordered_json& row, const std::string& label) const {
    if (is_set(set_, "winogrande")) {
      row["answer"] = label;
    } else if (label.size() == 1 && label[0] >= '0' && label[0] <= '9' && is_set(set_, "piqa")) {
      row["label"] = label[0] - '0';
    } else {
      row["label"] = label;
    }
  }

  void lines(const std::string& text, const std::string& name) {
    const Records records = parse_records(text, name);
    const std::vector<std::string_view> raw = split_lines(text);
    std::set<int64_t> seen;
    for (size_t i = 0; i < records.rows.size(); ++i) {
      const Record& record = records.rows[i];
      const std::string line(raw[static_cast<size_t>(record.line - 1)]);
      if (record.value == nullptr) {
        out_.faults.push_back(record.fault);
        keep(line, records.where(i));
        continue;
      }
      const ordered_json& row = *record.value;
      const bool olmes = row.contains("request_type") && row.contains("doc") && row["doc"].is_object();
      if (!olmes) {
        add(row, records.where(i), line);
        continue;
      }
      const int64_t doc =
          row.contains("doc_id") && row["doc_id"].is_number_integer() ? row["doc_id"].get<int64_t>() : -1;
      if (doc < 0) {
        out_.faults.push_back(fmt::format("a request has no doc_id ({})", records.where(i)));
      } else if (doc < kUnconditional && seen.insert(doc).second) {
        add(hf_row_of_olmes(set_, row["doc"]), records.where(i));
      }
    }
  }

  // Without their ends and the byte order mark.
  static std::vector<std::string_view> split_lines(std::string_view text) {
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    std::vector<std::string_view> out;
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      out.push_back(text.substr(0, end));
      if (out.back().ends_with('\r')) out.back().remove_suffix(1);
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return out;
  }

  void list(const std::string& text, const std::string& name) {
    const ordered_json root = parse_ordered_json(text, name, ErrorSubject::data);
    for (size_t i = 0; i < root.size(); ++i) {
      const std::string where = fmt::format("{}, entry {}", name, i + 1);
      if (root[i].is_object()) {
        add(root[i], where);
      } else {
        out_.faults.push_back(fmt::format("an entry is no JSON object ({})", where));
        keep(one_line(root[i]), where);
      }
    }
  }

  void csv(const std::string& text, const fs::path& path, const std::string& stem, bool tabs) {
    const bool header = !is_set(set_, "mmlu");
    CsvReader reader(text, path.string(), {.delimiter = tabs ? '\t' : ',', .header = header});
    std::vector<std::string> fields;
    while (reader.next(fields)) {
      ordered_json row = ordered_json::object();
      for (size_t i = 0; i < fields.size(); ++i) row[header ? reader.header()[i] : std::to_string(i)] = fields[i];
      const bool whole_set = set_ == "mmlu" || set_ == "ceval" || set_ == "ceval-valid" || set_ == "cmmlu";
      if (whole_set || is_set(set_, "mmlu")) row["subject"] = subject_of(stem);
      add(row, reader.where());
    }
  }

  // One article a file; the file's name is its identity.
  void race(const std::string& text, const fs::path& path) {
    ordered_json row = parse_ordered_json(text, path.string(), ErrorSubject::data);
    if (!row.is_object()) {
      out_.faults.push_back(fmt::format("an article is no JSON object ({})", path.string()));
      keep(one_line(row), path.string());
      return;
    }
    add(row, path.string());
  }

  const std::string& set_;
  std::vector<std::string> labels_;
  std::string labels_file_;
  size_t n_labelled_ = 0;
  Imported out_;
};

}  // namespace

Imported import_rows(const std::string& set, const fs::path& path, const fs::path& labels) {
  return Import(set, labels).take(path);
}

}  // namespace hayfork::datasets
