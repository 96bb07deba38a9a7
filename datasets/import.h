// Data sets as their authors and others publish them, turned into the rows that Hugging Face's copies have: the one
// form tasks read. Known: HF rows themselves (JSON lines, one JSON list, CSV, TSV), OLMES request files, the original
// files of ARC, OpenBookQA, CommonsenseQA, HellaSwag, PIQA, Social IQa, WinoGrande, MMLU, C-Eval, CMMLU, RACE,
// SuperGLUE and StoryCloze; any of them in gzip format. Unknown rows pass through unchanged.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace hayfork::datasets {

struct Imported {
  std::vector<std::string> lines;   // one JSON object each; a broken line as it was
  std::vector<std::string> where;   // of each line, its place in what was read: "FILE, line 3"
  std::vector<std::string> faults;  // what is wrong and where: "not valid JSON (FILE, line 3; …)"
};

// `set` decides the form: "arc_easy", "mmlu_anatomy", "race", …. `path` is a file, or for MMLU, C-Eval, CMMLU and RACE
// also a folder of files (read in byte order of their names). `labels`: a file of one label a line, for sets that keep
// them apart; may be empty. Throws: not_found; corrupt (data) for a file that cannot be read at all.
Imported import_rows(const std::string& set, const std::filesystem::path& path, const std::filesystem::path& labels);

}  // namespace hayfork::datasets
