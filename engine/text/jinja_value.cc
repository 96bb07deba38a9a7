#include "engine/text/jinja_value.h"

#include <algorithm>

#include <fmt/format.h>

namespace hayfork::engine::jinja {
namespace {

struct Text : Heap {
  std::string text;
};

struct Items : Heap {
  Values items;
};

struct DictBox : Heap {
  Dict dict;
};

struct RangeBox : Heap {
  Range range;
};

int depth_over(Runtime& rt, const Values& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  if (++depth > kMaxValueDepth) rt.out_of("nesting");
  return depth;
}

// A function with its receiver: what attribute access on a method gives.
class Function : public Object {
 public:
  Function(std::string name, std::function<Value(Runtime&, Args&)> call)
      : name_(std::move(name)), call_(std::move(call)) {}
  std::string type_name() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  Value call(Runtime& rt, Args& args) override { return call_(rt, args); }

 private:
  std::string name_;
  std::function<Value(Runtime&, Args&)> call_;
};

// Equal keys have equal text, whatever their type.
std::string key_text(Runtime& rt, const Value& key) {
  switch (key.kind()) {
    case Kind::string:
      return "s" + key.text();
    case Kind::none:
      return "n";
    case Kind::boolean:
    case Kind::integer:
      return fmt::format("i{}", key.integer());
    case Kind::floating: {
      const double d = key.number();
      if (d >= -9.2e18 && d <= 9.2e18 && d == static_cast<double>(static_cast<int64_t>(d)))
        return fmt::format("i{}", static_cast<int64_t>(d));
      return fmt::format("f{}", d);
    }
    case Kind::tuple: {
      std::string text = "t";
      for (const Value& item : key.items()) {
        const std::string part = key_text(rt, item);
        text += fmt::format("{}:", part.size()) + part;
      }
      rt.charge(text.size());
      return text;
    }
    case Kind::range: {
      const Range& r = key.range();
      const int64_t n = r.size();
      return fmt::format("r{} {} {}", n, n > 0 ? r.start : 0, n > 1 ? r.step : 0);
    }
    case Kind::undefined:
      return "u" + key.text();
    case Kind::object:
      return fmt::format("o{}", static_cast<const void*>(&key.object()));
    default:
      rt.fail(fmt::format("unhashable type: '{}'", type_name(key)));
  }
}

}  // namespace

Runtime::Runtime(std::string_view template_name, Limits limits, const std::tm* clock)
    : name_(template_name), limits_(limits), clock_(clock) {}

Runtime::~Runtime() {
  for (const auto& object : kept_) object->clear();
}

void Runtime::keep(std::shared_ptr<Object> object) {
  hold(256);
  kept_.push_back(std::move(object));
}

void Runtime::fail(const std::string& what) const {
  throw Error(ErrorCode::corrupt, ErrorSubject::data, what, {.where = fmt::format("{}, line {}", name_, line)});
}

void Runtime::unsupported(const std::string& what) const {
  throw Error(ErrorCode::unsupported, ErrorSubject::model, what, {.where = fmt::format("{}, line {}", name_, line)});
}

void Runtime::out_of(const char* what) const {
  throw Error(
      ErrorCode::resource, ErrorSubject::model, "the chat template asks for too much",
      {.where = fmt::format("{}, line {}", name_, line), .why = fmt::format("its limit of {} is reached", what)});
}

Value Value::undefined(std::string hint) {
  Value value;
  value.kind_ = Kind::undefined;
  auto text = std::make_shared<Text>();
  text->text = std::move(hint);
  value.heap_ = std::move(text);
  return value;
}

Value Value::string(Runtime& rt, std::string text) {
  const size_t bytes = text.size() + sizeof(Text);
  Value value = constant(std::move(text));
  value.heap_->hold(rt, bytes);
  return value;
}

Value Value::constant(std::string text) {
  Value value = undefined(std::move(text));
  value.kind_ = Kind::string;
  return value;
}

Value Value::list(Runtime& rt, Values items) {
  auto box = std::make_shared<Items>();
  box->hold(rt, sizeof(Items) + items.size() * sizeof(Value));
  box->depth = depth_over(rt, items);
  box->items = std::move(items);
  Value value;
  value.kind_ = Kind::list;
  value.heap_ = std::move(box);
  return value;
}

Value Value::tuple(Runtime& rt, Values items) {
  Value value = list(rt, std::move(items));
  value.kind_ = Kind::tuple;
  return value;
}

Value Value::dict(Runtime& rt, Dict dict) {
  auto box = std::make_shared<DictBox>();
  box->hold(rt, sizeof(DictBox) + dict.size() * (sizeof(Dict::Entry) + 96));  // with its index
  for (const auto& [key, item] : dict.entries()) box->depth = std::max({box->depth, key.depth(), item.depth()});
  if (++box->depth > kMaxValueDepth) rt.out_of("nesting");
  box->dict = std::move(dict);
  Value value;
  value.kind_ = Kind::dict;
  value.heap_ = std::move(box);
  return value;
}

Value Value::range(int64_t start, int64_t stop, int64_t step) {
  auto box = std::make_shared<RangeBox>();
  box->range = {start, stop, step};
  Value value;
  value.kind_ = Kind::range;
  value.heap_ = std::move(box);
  return value;
}

Value Value::view(Runtime& rt, const char* type, Values items) {
  auto box = std::make_shared<View>();
  box->hold(rt, sizeof(View) + items.size() * sizeof(Value));
  box->depth = depth_over(rt, items);
  box->type = type;
  box->items = std::move(items);
  Value value;
  value.kind_ = Kind::view;
  value.heap_ = std::move(box);
  return value;
}

Value Value::generator(Runtime& rt, const char* type, const Value& source, std::function<bool(Value&)> next) {
  auto box = std::make_shared<Generator>();
  box->hold(rt, sizeof(Generator) + 256);
  box->depth = depth_over(rt, {source});
  box->type = type;
  box->next = std::move(next);
  Value value;
  value.kind_ = Kind::generator;
  value.heap_ = std::move(box);
  return value;
}

Value Value::object(std::shared_ptr<Object> object) {
  Value value;
  value.kind_ = Kind::object;
  value.heap_ = std::move(object);
  return value;
}

Value Value::function(Runtime& rt, std::string name, const Value& self, std::function<Value(Runtime&, Args&)> call) {
  auto function = std::make_shared<Function>(std::move(name), std::move(call));
  function->hold(rt, sizeof(Function) + 64);
  function->depth = depth_over(rt, {self});
  return object(std::move(function));
}

const std::string& Value::text() const {
  return static_cast<const Text&>(*heap_).text;
}
const Values& Value::items() const {
  return kind_ == Kind::view ? static_cast<const View&>(*heap_).items : static_cast<const Items&>(*heap_).items;
}
const Dict& Value::dict() const {
  return static_cast<const DictBox&>(*heap_).dict;
}
const Range& Value::range() const {
  return static_cast<const RangeBox&>(*heap_).range;
}
const View& Value::view() const {
  return static_cast<const View&>(*heap_);
}
const Generator& Value::generator() const {
  return static_cast<const Generator&>(*heap_);
}
Object& Value::object() const {
  return static_cast<Object&>(*heap_);
}

Value Value::as_markup(bool on) const {
  Value value = *this;
  value.markup_ = on && kind_ == Kind::string;
  return value;
}

bool Value::same(const Value& other) const {
  if (kind_ != other.kind_) return false;
  if (heap_ || other.heap_) return heap_ == other.heap_ || (kind_ == Kind::string && text() == other.text());
  return kind_ == Kind::none || (kind_ == Kind::floating ? number_ == other.number_ : integer_ == other.integer_);
}

const Value* Dict::find(Runtime& rt, const Value& key) const {
  const auto found = index_.find(key_text(rt, key));
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

const Value* Dict::find(std::string_view key) const {
  const auto found = index_.find("s" + std::string(key));
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

void Dict::set(Runtime& rt, Value key, Value value) {
  const auto [found, is_new] = index_.try_emplace(key_text(rt, key), entries_.size());
  if (!is_new) {
    entries_[found->second].second = std::move(value);
    return;
  }
  rt.charge(sizeof(Entry) + 64 + found->first.size());
  entries_.emplace_back(std::move(key), std::move(value));
}

int64_t Range::size() const {
  if (step > 0) return stop > start ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

const Value* Args::find(std::string_view name) const {
  for (const auto& [key, value] : keyword) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::optional<Value> Object::attribute(Runtime&, std::string_view) {
  return std::nullopt;
}
Value Object::call(Runtime& rt, Args&) {
  rt.fail(fmt::format("'{}' object is not callable", type_name()));
}
std::string Object::repr(Runtime& rt) {
  rt.unsupported(fmt::format("a template that prints a {}", type_name()));
}

std::optional<Value> Namespace::attribute(Runtime&, std::string_view name) {
  const Value* found = attributes_.find(name);
  return found ? std::optional<Value>(*found) : std::nullopt;
}

std::string Namespace::repr(Runtime& rt) {
  Values pairs;
  std::string text = "<Namespace {";
  for (const auto& [key, value] : attributes_.entries()) {
    if (text.back() != '{') text += ", ";
    text += jinja::repr(rt, key) + ": " + jinja::repr(rt, value);
  }
  return text + "}>";
}

void Namespace::set(Runtime& rt, const std::string& name, Value value) {
  if (name.starts_with("_"))
    rt.fail(fmt::format("a namespace cannot store an attribute that starts with an underscore: '{}'", name));
  depth = std::max(depth, value.depth() + 1);
  if (depth > kMaxValueDepth) rt.out_of("nesting");
  rt.hold(128);
  attributes_.set(rt, Value::string(rt, name), std::move(value));
}

Bound::Bound(Runtime& rt, std::string_view what, Args& args, std::initializer_list<const char*> names, size_t required)
    : rt_(rt), what_(what), values_(names.size()), names_(names) {
  if (args.positional.size() > names.size()) {
    rt.fail(fmt::format("{}() takes at most {} arguments ({} given)", what, names.size(), args.positional.size()));
  }
  for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = args.positional[i];
  for (auto& [key, value] : args.keyword) {
    const auto found = std::find(names_.begin(), names_.end(), key);
    if (found == names_.end()) rt.fail(fmt::format("{}() got an unexpected keyword argument '{}'", what, key));
    std::optional<Value>& slot = values_[found - names_.begin()];
    if (slot) rt.fail(fmt::format("{}() got multiple values for argument '{}'", what, key));
    slot = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i]) rt.fail(fmt::format("{}() missing required argument: '{}'", what, names_[i]));
  }
}

std::string Bound::text(size_t i, std::string fallback) const {
  if (!values_[i]) return fallback;
  if (!values_[i]->is(Kind::string)) {
    rt_.fail(fmt::format("{}() argument '{}' must be str, not {}", what_, names_[i], type_name(*values_[i])));
  }
  return values_[i]->text();
}

int64_t Bound::integer(size_t i, int64_t fallback) const {
  if (!values_[i]) return fallback;
  if (!values_[i]->is_integral()) {
    rt_.fail(fmt::format("'{}' object cannot be interpreted as an integer ({}() argument '{}')", type_name(*values_[i]),
                         what_, names_[i]));
  }
  return values_[i]->integer();
}

bool Bound::truth(size_t i, bool fallback) const {
  return values_[i] ? jinja::truth(*values_[i]) : fallback;
}

}  // namespace hayfork::engine::jinja
