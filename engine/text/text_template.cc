#include "engine/text/text_template.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/text/jinja_from_json.h"
#include "engine/text/jinja_interpreter.h"
#include "engine/text/jinja_parser.h"

namespace hayfork::engine {
namespace {

constexpr size_t kMaxSource = 1 << 20, kMaxOutput = 16 << 20;

}  // namespace

struct TextTemplate::Impl {
  std::string source, name;
  jinja::Template parsed;
};

TextTemplate TextTemplate::parse(std::string source, std::string name) {
  if (source.size() > kMaxSource)
    throw Error(ErrorCode::usage, ErrorSubject::general, "a template is too large", {.where = name});
  auto impl = std::make_shared<Impl>();
  impl->source = std::move(source);
  impl->name = std::move(name);
  try {
    impl->parsed = jinja::parse_template(impl->source, impl->name, jinja::Rules::plain);
  } catch (const Error& error) {  // the user's file, not a checkpoint's
    throw Error(ErrorCode::usage, ErrorSubject::general, "a template is not valid, or uses what is not supported",
                {.where = error.detail().where.empty() ? impl->name : error.detail().where,
                 .why = error.detail().why.empty() ? error.summary() : error.detail().why});
  }
  return TextTemplate(std::move(impl));
}

std::string TextTemplate::render(const nlohmann::ordered_json& values) const {
  jinja::Runtime rt(impl_->name, {}, nullptr);
  jinja::Interpreter interpreter(rt, kMaxOutput);
  interpreter.refuse_undefined();
  for (const auto& [name, value] : values.items()) interpreter.define(name, jinja::from_json(rt, value));
  return interpreter.run(impl_->parsed);
}

const std::string& TextTemplate::source() const {
  return impl_->source;
}

}  // namespace hayfork::engine
