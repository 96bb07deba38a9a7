#include "engine/text/jinja_from_json.h"

#include <nlohmann/json.hpp>

#include "base/utf8.h"

namespace hayfork::engine::jinja {

using Json = nlohmann::ordered_json;

Value from_json(Runtime& rt, const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value(json.get<bool>());
    case Json::value_t::number_integer:
      return Value(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() > INT64_MAX)
        throw Error(ErrorCode::usage, ErrorSubject::general, "a template's value holds an integer beyond 64 bits");
      return Value(json.get<int64_t>());
    case Json::value_t::number_float:
      return Value(json.get<double>());
    case Json::value_t::string:
      return Value::string(rt, replace_invalid_utf8(json.get_ref<const std::string&>()));
    case Json::value_t::array: {
      Values items;
      for (const Json& item : json) items.push_back(from_json(rt, item));
      return Value::list(rt, std::move(items));
    }
    case Json::value_t::object: {
      Dict dict;
      for (const auto& [key, value] : json.items()) dict.set(rt, Value::string(rt, key), from_json(rt, value));
      return Value::dict(rt, std::move(dict));
    }
    default:
      return Value::none();
  }
}

}  // namespace hayfork::engine::jinja
