// Chat templates of sixteen model families against renderings of transformers, byte for byte.
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "engine/text/chat_template.h"
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

TEST(ChatTemplateGolden, RendersAsTransformersDoes) {
  HAY_NEED_DATA(folder, "golden/chat");
  int n_cases = 0;
  int n_errors = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream stream(entry.path());
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    const Json file = parse_ordered_json(text, entry.path().filename(), ErrorSubject::data);
    const ChatTemplate chat = ChatTemplate::parse(file.at("template").get<std::string>(), entry.path().filename());
    for (const Json& item : file.at("cases")) {
      SCOPED_TRACE(entry.path().filename().string() + " " + item.at("name").get<std::string>());
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

}  // namespace
}  // namespace hayfork::engine
