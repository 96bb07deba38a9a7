#include <fmt/format.h>

#include "base/file_map.h"
#include "base/json.h"
#include "cli/input.h"
#include "cli/probe.h"
#include "cli/verbs.h"

namespace hayfork::cli {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

struct TokenizeOptions {
  std::string model, tokenizer, text, file, jsonl, format = "jsonl";
  bool no_special = false, literal = false, decode = false, offsets = false;
};

struct Input {
  json value;  // a string to encode, or a list of ids to decode
  std::string where;
};

// A bare value, or the member an object holds it in.
json member(const json& value, const char* key, const std::string& where) {
  if (!value.is_object()) return value;
  if (!value.contains(key)) {
    throw Error(ErrorCode::corrupt, ErrorSubject::data, "malformed request",
                {.where = where, .why = fmt::format("no \"{}\" in it", key)});
  }
  return value[key];
}

std::vector<Input> inputs(const TokenizeOptions& options, bool text_given) {
  const char* key = options.decode ? "ids" : "text";
  if ((text_given ? 1 : 0) + (options.file.empty() ? 0 : 1) + (options.jsonl.empty() ? 0 : 1) != 1) {
    throw Error(ErrorCode::usage, ErrorSubject::general, "probe tokenize needs one of --text, --file, --jsonl");
  }
  if (!options.jsonl.empty()) {
    std::vector<Input> all;
    for (JsonLine& line : read_json_lines(options.jsonl))
      all.push_back({member(line.value, key, line.where), line.where});
    return all;
  }
  const std::string text = text_given ? options.text : read_input(options.file, ErrorSubject::data);
  const std::string where = text_given ? "--text" : options.file;
  if (!options.decode) return {{json(text), where}};
  return {{member(parse_json(text, where, ErrorSubject::data), key, where), where}};
}

ordered_json encoded(const engine::Tokenizer& tokenizer, const Input& input, const TokenizeOptions& options) {
  if (!input.value.is_string()) {
    throw Error(ErrorCode::corrupt, ErrorSubject::data, "malformed request",
                {.where = input.where, .why = "want text"});
  }
  const engine::EncodeOptions how{.add_special = !options.no_special, .parse_special = !options.literal};
  const std::string text = input.value.get<std::string>();
  if (!options.offsets) return {{"ids", tokenizer.encode(text, how)}};
  const engine::Encoding encoding = tokenizer.encode_with_offsets(text, how);
  return {{"ids", encoding.ids}, {"offsets", encoding.offsets}};
}

ordered_json decoded(const engine::Tokenizer& tokenizer, const Input& input, const TokenizeOptions& options) {
  // Ids past the vocabulary are legal here: the padding rows of an embedding decode to nothing.
  engine::ModelInfo any;
  any.vocab_size = std::numeric_limits<int32_t>::max();
  return {{"text", tokenizer.decode(ids_of(input.value, any, input.where), options.no_special)}};
}

int run(const TokenizeOptions& options, bool text_given, Console& console) {
  const std::vector<Input> all = inputs(options, text_given);
  const auto tokenizer = engine::Tokenizer::load(options.tokenizer.empty() ? model_folder(options.model)
                                                                           : std::filesystem::path(options.tokenizer));
  for (const std::string& warning : tokenizer->warnings()) console.warn("", warning);
  for (const Input& input : all) {
    const ordered_json line =
        options.decode ? decoded(*tokenizer, input, options) : encoded(*tokenizer, input, options);
    console.out(line.dump(-1, ' ', true, ordered_json::error_handler_t::replace) + "\n");
  }
  return 0;
}

}  // namespace

Action declare_probe_tokenize(Flags& flags) {
  auto options = std::make_shared<TokenizeOptions>();
  declare_text_source(flags, options->model, options->tokenizer, "Checkpoint folder, or a tokenizer file.");
  auto given = std::make_shared<bool>(false);
  flags
      .declare("text", "T", "The text itself; with --decode a JSON list of ids.",
               [options, given](const auto& values) {
                 options->text = values.back();
                 *given = true;
               })
      .configurable = false;
  flags.text("file", options->file, "F", "A whole file as one text; - for standard input.").kind = "file";
  flags
      .text("jsonl", options->jsonl, "F",
            "One text a line, as a JSON string or {\"text\":…}; with --decode ids or {\"ids\":[…]}.")
      .kind = "file";
  flags.group("How");
  flags.toggle("no-special", options->no_special,
               "Add no begin or end tokens; with --decode leave special tokens out of the text.");
  flags.toggle("literal", options->literal, "Read special tokens spelled out in the text as plain text.");
  flags.toggle("offsets", options->offsets, "Also each id's range of the text, in code points.");
  flags.toggle("decode", options->decode, "From ids to text.");
  flags.choice("format", options->format, {"jsonl"}, "How answers are printed.");
  return [options, given](Console& console) { return run(*options, *given, console); };
}

}  // namespace hayfork::cli
