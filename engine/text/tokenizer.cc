#include "engine/text/tokenizer.h"

#include "base/file_map.h"
#include "base/files.h"
#include "engine/text/sentencepiece_tokenizer.h"
#include "engine/text/tokenizer_config.h"
#include "engine/text/tokenizer_json.h"

namespace hayfork::engine {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 30;
constexpr const char* kJson = "tokenizer.json";
constexpr const char* kModel = "tokenizer.model";

std::filesystem::path find_file(const std::filesystem::path& path) {
  if (!folder_exists(path, ErrorSubject::model)) return path;
  for (const char* name : {kJson, kModel})
    if (file_exists(path / name, ErrorSubject::model)) return path / name;
  throw Error(ErrorCode::not_found, ErrorSubject::model, "this folder has no tokenizer",
              {.where = path.string(), .why = "neither tokenizer.json nor tokenizer.model is there", .next = {}});
}

}  // namespace

bool Tokenizer::present(const std::filesystem::path& directory) {
  return file_exists(directory / kJson, ErrorSubject::model) || file_exists(directory / kModel, ErrorSubject::model);
}

std::unique_ptr<Tokenizer> Tokenizer::load(const std::filesystem::path& path, TokenizerOptions options) {
  const std::filesystem::path file = find_file(path);
  const FileMap map(file, ErrorSubject::model);
  if (map.bytes().size() > kMaxFileBytes) {
    throw Error(
        ErrorCode::corrupt, ErrorSubject::model, "tokenizer too large",
        {.where = file.string(), .why = std::to_string(map.bytes().size()) + " bytes, at most 1 GiB", .next = {}});
  }
  const std::string_view content(reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size());
  const TokenizerConfig config = read_tokenizer_config(file.parent_path());
  try {
    if (file.extension() == ".model") return load_sentencepiece(content, file.string(), config);
    return load_tokenizer_json(content, file.string(), config, options);
  } catch (const Error& error) {  // deep inside, a fault knows its part, its file's name perhaps, but not its folder
    if (std::string_view(error.what()).find(file.string()) != std::string_view::npos) throw;
    ErrorDetail detail = error.detail();
    const std::string name = file.filename().string();
    const std::string part = detail.where.starts_with(name) ? detail.where.substr(name.size())
                             : detail.where.empty()         ? ""
                                                            : ", " + detail.where;
    detail.where = file.string() + part;
    throw Error(error.code(), error.subject(), error.summary(), std::move(detail));
  }
}

std::optional<std::string> Tokenizer::chat_template(const std::string& template_name) const {
  const auto found = chat_templates_.find(template_name);
  if (found == chat_templates_.end()) return std::nullopt;
  return found->second;
}

}  // namespace hayfork::engine
