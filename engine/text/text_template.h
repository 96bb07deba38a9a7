// A Jinja2 template over named values, rendered as lm-evaluation-harness renders the templates of its task files
// (lm_eval/utils.py: undefined variables are errors, a line feed at the end stays). Templates are untrusted: depth,
// steps and output are limited.
#pragma once

#include <memory>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"

namespace hayfork::engine {

class TextTemplate {
 public:
  // `name` is for messages. Throws: usage for broken syntax and for constructs unknown here, with the line.
  static TextTemplate parse(std::string source, std::string name);

  // `values`: an object. Throws: corrupt (data) for what the template cannot do with them, an undefined name included;
  // resource when a limit is passed.
  std::string render(const nlohmann::ordered_json& values) const;

  const std::string& source() const;

 private:
  struct Impl;
  explicit TextTemplate(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;  // immutable: copies share it, and threads may render at once
};

}  // namespace hayfork::engine
