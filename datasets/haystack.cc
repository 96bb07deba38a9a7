#include "datasets/haystack.h"

#include <algorithm>

#include "base/digest.h"
#include "base/error.h"
#include "base/file_map.h"
#include "base/utf8.h"

namespace hayfork::datasets {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxBytes = size_t{1} << 30;

std::vector<fs::path> text_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    std::error_code ignored;
    if (it->path().extension() == ".txt" && it->is_regular_file(ignored)) files.push_back(it->path());
  }
  if (failed)
    throw Error(ErrorCode::not_found, ErrorSubject::data, "cannot read the haystack's folder",
                {folder.string(), failed.message(), "check the path and its permissions"});
  std::sort(files.begin(), files.end(),
            [](const fs::path& a, const fs::path& b) { return a.filename().string() < b.filename().string(); });
  if (files.empty())
    throw Error(
        ErrorCode::corrupt, ErrorSubject::data, "the haystack's folder has no text",
        {folder.string(), "no file in it ends in .txt", "put text files there, or name another folder or file"});
  return files;
}

void append_file(Haystack& haystack, const fs::path& file) {
  const std::string text = read_file(file, ErrorSubject::data, kMaxBytes);
  if (const auto bad = find_invalid_utf8(text))
    throw Error(ErrorCode::corrupt, ErrorSubject::data, "a haystack file is not UTF-8",
                {file.string() + ", byte " + std::to_string(*bad), "text must be UTF-8",
                 "convert it, for example with iconv -t utf-8"});
  if (haystack.text.size() + text.size() > kMaxBytes)
    throw Error(ErrorCode::corrupt, ErrorSubject::data, "the haystack is too large",
                {file.string(), "more than 1 GiB of text in all", "use fewer or smaller files"});
  haystack.text += text;
  haystack.files.push_back(file.filename().string());
}

}  // namespace

Haystack load_haystack(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    throw Error(ErrorCode::not_found, ErrorSubject::data, "no such haystack",
                {path.string(), "neither a file nor a folder", "give a text file, or a folder of .txt files"});
  Haystack haystack;
  const fs::path named = path.has_filename() ? path : path.parent_path();
  haystack.name = named.filename().string();
  const bool folder = fs::is_directory(path, ignored);
  if (!folder && !fs::is_regular_file(path, ignored))
    throw Error(ErrorCode::not_found, ErrorSubject::data, "the haystack is no regular file",
                {path.string(), "it is read again when the run is resumed", "copy its text to a file"});
  if (folder)
    for (const fs::path& file : text_files(path)) append_file(haystack, file);
  else
    append_file(haystack, path);
  if (haystack.text.find_first_not_of(" \t\r\n") == std::string::npos)
    throw Error(ErrorCode::corrupt, ErrorSubject::data, "the haystack is empty",
                {path.string(), "there is nothing but white space in it", "name a file or folder with text"});
  haystack.sha256 = sha256_hex(haystack.text);
  return haystack;
}

Haystack shipped_haystack(std::span<const fs::path> share_dirs) {
  std::string looked;
  for (const fs::path& dir : share_dirs) {
    const fs::path file = dir / "haystack" / "english.txt";
    std::error_code ignored;
    if (fs::exists(file, ignored)) {
      Haystack haystack = load_haystack(file);
      haystack.name = "english";
      return haystack;
    }
    looked += (looked.empty() ? "" : ", ") + file.string();
  }
  throw Error(ErrorCode::not_found, ErrorSubject::data, "the shipped haystack is not here",
              {looked, "none of these files exists", "install Hayfork's share folder, or name a haystack of your own"});
}

Haystack noise_haystack() {
  Haystack haystack{
      "noise", "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. ", {}, {}};
  haystack.sha256 = sha256_hex(haystack.text);
  return haystack;
}

}  // namespace hayfork::datasets
