// Global functions: range, dict, namespace, cycler, joiner, and the two that transformers adds.
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "engine/text/jinja_library.h"

namespace hayfork::engine::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // jinja2.sandbox.MAX_RANGE

Dict make_dict(Runtime& rt, const char* what, Args& args) {
  if (args.positional.size() > 1)
    rt.fail(fmt::format("{}() expected at most 1 argument, got {}", what, args.positional.size()));
  Dict dict;
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    if (source.is(Kind::dict)) {
      for (const auto& [key, value] : source.dict().entries()) dict.set(rt, key, value);
    } else {
      const auto next = iterate(rt, source);
      for (Value pair; next(pair);) {
        const Values both = to_items(rt, pair);
        if (both.size() != 2) rt.fail("dictionary update sequence element has a length that is not 2");
        dict.set(rt, both[0], both[1]);
      }
    }
  }
  for (const auto& [key, value] : args.keyword) dict.set(rt, Value::string(rt, key), value);
  return dict;
}

Value range_function(Runtime& rt, Args& args) {
  const Bound bound(rt, "range", args, {"start", "stop", "step"}, 1);
  const bool one = !bound[1];
  const int64_t start = one ? 0 : bound.integer(0, 0);
  const int64_t stop = bound.integer(one ? 0 : 1, 0);
  const int64_t step = bound.integer(2, 1);
  if (step == 0) rt.fail("range() arg 3 must not be zero");
  constexpr int64_t kFar = int64_t{1} << 53;
  for (const int64_t n : {start, stop, step}) {
    if (n > kFar || n < -kFar) rt.fail("Range too big");
  }
  if (Range{start, stop, step}.size() > kMaxRange)
    rt.fail(fmt::format("Range too big. The sandbox blocks ranges larger than {}.", kMaxRange));
  return Value::range(start, stop, step);
}

class DictFunction : public Object {
 public:
  std::string type_name() const override { return "TemplateDict"; }
  bool callable() const override { return true; }
  Value call(Runtime& rt, Args& args) override { return Value::dict(rt, make_dict(rt, "dict", args)); }
  std::optional<Value> attribute(Runtime& rt, std::string_view name) override {
    if (name != "fromkeys") return std::nullopt;
    return Value::function(rt, "fromkeys", Value::none(), [](Runtime& run, Args& args) {
      const Bound bound(run, "fromkeys", args, {"iterable", "value"}, 1);
      Dict dict;
      const auto next = iterate(run, *bound[0]);
      for (Value key; next(key);) dict.set(run, key, bound.get(1, Value::none()));
      return Value::dict(run, std::move(dict));
    });
  }
};

Value namespace_function(Runtime& rt, Args& args) {
  auto space = std::make_shared<Namespace>();
  rt.keep(space);
  const Dict attributes = make_dict(rt, "namespace", args);
  for (const auto& [key, value] : attributes.entries()) {
    if (!key.is(Kind::string)) rt.unsupported("a namespace attribute that is not a name");
    space->set(rt, key.text(), value);
  }
  return Value::object(std::move(space));
}

Value raise_exception(Runtime& rt, Args& args) {
  const Bound bound(rt, "raise_exception", args, {"message"}, 1);
  rt.fail(to_string(rt, *bound[0]));
}

std::string format_time(Runtime& rt, const std::string& format, std::tm time) {
  if (format.find('\0') != std::string::npos) rt.fail("embedded null character");
  timegm(&time);  // fills in the weekday and the day of the year
  // Python's datetime writes these itself: a naive time has no zone, and the frozen clock counts whole seconds.
  std::string expanded;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      expanded += format[i];
      continue;
    }
    const char code = format[++i];
    if (code == 's') rt.unsupported("the time format %s, which depends on the machine");
    if (code == 'f')
      expanded += "000000";
    else if (code != 'z' && code != 'Z')
      expanded += {'%', code};
  }
  // The mark at the front tells an empty result from one that does not fit.
  const std::string marked = "x" + expanded;
  for (size_t size = 256; size <= size_t{1} << 16; size *= 4) {
    std::string text(size, '\0');
    const size_t n = std::strftime(text.data(), text.size(), marked.c_str(), &time);
    if (n > 0) return text.substr(1, n - 1);
  }
  rt.out_of("memory");
}

Value strftime_now(Runtime& rt, Args& args) {
  const Bound bound(rt, "strftime_now", args, {"format"}, 1);
  if (!rt.clock()) {
    throw Error(ErrorCode::usage, ErrorSubject::model,
                "the chat template asks for the current time, and no clock was given",
                {.next = "give the date and time that it shall see"});
  }
  return Value::string(rt, format_time(rt, bound.text(0, ""), *rt.clock()));
}

class Cycler : public Object {
 public:
  explicit Cycler(Values items) : items_(std::move(items)) {}
  std::string type_name() const override { return "Cycler"; }
  std::optional<Value> attribute(Runtime& rt, std::string_view name) override {
    if (name == "current") return items_[position_];
    if (name != "next" && name != "reset") return std::nullopt;
    const bool advance = name == "next";
    return Value::function(rt, std::string(name), Value::none(), [this, advance](Runtime& run, Args& args) {
      const Bound bound(run, "cycler", args, {});
      const Value current = items_[position_];
      position_ = advance ? (position_ + 1) % items_.size() : 0;
      return advance ? current : Value::none();
    });
  }

 private:
  Values items_;
  size_t position_ = 0;
};

class Joiner : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  std::string type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  Value call(Runtime& rt, Args& args) override {
    const Bound bound(rt, "joiner", args, {});
    return std::exchange(used_, true) ? separator_ : Value::string(rt, "");
  }

 private:
  Value separator_;
  bool used_ = false;
};

Value cycler_function(Runtime& rt, Args& args) {
  if (args.positional.empty()) rt.fail("at least one item has to be provided");
  auto cycler = std::make_shared<Cycler>(args.positional);
  cycler->depth = Value::list(rt, args.positional).depth();
  rt.hold(args.positional.size() * sizeof(Value));
  rt.keep(cycler);
  return Value::object(std::move(cycler));
}

Value joiner_function(Runtime& rt, Args& args) {
  const Bound bound(rt, "joiner", args, {"sep"});
  const Value separator = Value::string(rt, bound[0] ? to_string(rt, *bound[0]) : ", ");
  return Value::object(std::make_shared<Joiner>(separator));
}

}  // namespace

std::optional<Value> find_global(Runtime& rt, const std::string& name) {
  using Function = Value (*)(Runtime&, Args&);
  static constexpr std::array<std::pair<std::string_view, Function>, 6> kFunctions = {
      {{"range", range_function},
       {"namespace", namespace_function},
       {"raise_exception", raise_exception},
       {"strftime_now", strftime_now},
       {"cycler", cycler_function},
       {"joiner", joiner_function}}};
  if (name == "dict") return Value::object(std::make_shared<DictFunction>());
  for (const auto& [known, function] : kFunctions) {
    if (known == name) return Value::function(rt, name, Value::none(), function);
  }
  if (name == "lipsum") rt.unsupported("the function lipsum, whose text is random");
  return std::nullopt;
}

}  // namespace hayfork::engine::jinja
