// The template's text cut into tokens, with Jinja's whitespace rules applied.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hayfork::engine::jinja {

// How the environment around a template is set up.
enum class Rules : uint8_t {
  chat,   // transformers: trim_blocks, lstrip_blocks, a line feed at the very end is dropped
  plain,  // lm-evaluation-harness: text stays as it is
};

enum class TokenKind : uint8_t {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  floating,
  op,  // one of the operators, in Token::text
  end
};

struct Token {
  TokenKind kind;
  std::string text;  // decoded, for data and strings
  int line;
};

// `name` is for messages. Throws: Error(corrupt, model) with the line.
std::vector<Token> tokenize(std::string_view source, const std::string& name, Rules rules = Rules::chat);

}  // namespace hayfork::engine::jinja
