// Chat templates of sixteen model families against renderings of transformers, byte for byte.
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "tests/support/paths.h"

namespace hayfork::engine {
namespace {

using Json = nlohmann::ordered_json;

std::tm parse_clock(const std::string& text) {
  std::tm time{};
  std::istringstream(text) >> std::get_time(&time, "%Y-%m-%dT%H:%M:%S");
  return time;
}

ChatRequest make_request(const Json& file, const Json& entry) {
  ChatRequest request;
  request.messages = &entry.at("messages");
  if (entry.contains("kwargs")) request.kwargs = &entry.at("kwargs");
  request.add_generation_prompt = entry.at("add_generation_prompt").get<bool>();
  request.continue_final_message = entry.at("continue_final_message").get<bool>();
  for (const auto& [name, text] : file.at("special_tokens").items())
    request.special_tokens[name] = text.get<std::string>();
  request.clock = parse_clock(file.at("frozen_clock").get<std::string>());
  return request;
}

void check_error(const ChatTemplate& chat, const ChatRequest& request, const std::string& wanted) {
  try {
    FAIL() << "rendered, though transformers says " << wanted << "\n" << chat.render(request);
  } catch (const Error& error) {
    const std::string message = wanted.substr(wanted.find(": ") + 2);
    if (wanted.starts_with("TemplateError")) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
    EXPECT_NE(error.code(), ErrorCode::internal) << error.what();
    EXPECT_NE(error.code(), ErrorCode::unsupported) << error.what();
  }
}

std::vector<Json> golden_files(const std::filesystem::path& folder) {
  std::vector<Json> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream stream(entry.path());
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    files.push_back(parse_ordered_json(text, entry.path().filename(), ErrorSubject::data));
  }
  return files;
}

ChatTemplate parse_golden(const Json& file) {
  return ChatTemplate::parse(file.at("template").get<std::string>(), file.at("name").get<std::string>());
}

TEST(ChatTemplateGolden, RendersAsTransformersDoes) {
  HAY_NEED_DATA(folder, "golden/chat");
  int n_cases = 0;
  int n_errors = 0;
  for (const Json& file : golden_files(folder)) {
    const ChatTemplate chat = parse_golden(file);
    for (const Json& item : file.at("cases")) {
      SCOPED_TRACE(chat.name() + " " + item.at("name").get<std::string>());
      const ChatRequest request = make_request(file, item);
      ++n_cases;
      if (item.contains("error")) {
        ++n_errors;
        check_error(chat, request, item.at("error").get<std::string>());
        continue;
      }
      try {
        EXPECT_EQ(chat.render(request), item.at("rendered").get<std::string>());
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
  std::printf("%d cases, %d of them errors\n", n_cases, n_errors);
  EXPECT_GE(n_cases, 500);
}

TEST(ChatTemplateGolden, RenderedChatsHaveTheReferencesIds) {
  HAY_NEED_DATA(folder, "golden/chat");
  HAY_NEED_DATA(archives, "tokenizers");
  const test::TempDir scratch;
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
  int n_cases = 0;
  for (const Json& file : golden_files(folder)) {
    if (file.at("ids_from_archive").is_null()) continue;
    const auto name = file.at("ids_from_archive").get<std::string>();
    if (!tokenizers.contains(name)) {
      test::unpack_tar_xz(archives / (name + ".tar.xz"), scratch.path());
      tokenizers[name] = Tokenizer::load(scratch.path() / name);
    }
    const ChatTemplate chat = parse_golden(file);
    for (const Json& item : file.at("cases")) {
      if (!item.contains("ids")) continue;
      const std::string text = chat.render(make_request(file, item));
      EXPECT_EQ(tokenizers[name]->encode(text, {.add_special = false}), item.at("ids").get<std::vector<int32_t>>())
          << chat.name() << " " << item.at("name");
      ++n_cases;
    }
  }
  std::printf("%d chats encoded\n", n_cases);
  EXPECT_GE(n_cases, 190);
}

}  // namespace
}  // namespace hayfork::engine
