// Values of the template language: Python's None, bool, int, float, str, list, tuple, dict, range and views, Jinja's
// undefined, and objects with attributes (namespace, loop, macro, function). A value is cheap to copy and immutable;
// only objects change, and only through the interpreter. Runtime carries the limits that keep a hostile template
// finite.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"

namespace hayfork::engine::jinja {

enum class Kind : uint8_t {
  undefined,
  none,
  boolean,
  integer,
  floating,
  string,
  list,
  tuple,
  dict,
  range,
  view,
  generator,
  object
};

// What one rendering may use; a template within reason needs a thousandth of it.
struct Limits {
  int64_t steps = 20'000'000;  // expressions evaluated and items visited
  int64_t bytes = 1LL << 29;   // all strings and containers ever made, so also what lives at once
  int depth = 1'000;           // nested evaluation, macro calls included
};

// Containers within containers: bounds recursion in printing, comparing and destroying.
inline constexpr int kMaxValueDepth = 200;

class Object;

// The state of one rendering that values need: limits, the line for messages, the clock. No value may outlive it.
class Runtime {
 public:
  Runtime(std::string_view template_name, Limits limits, const std::tm* clock);
  ~Runtime();  // clears what was kept
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // An object that may refer to itself (a namespace, a macro) is cleared at the end, else it would never go away.
  void keep(std::shared_ptr<Object> object);

  void step(int64_t n = 1) {
    if ((limits_.steps -= n) < 0) out_of("steps");
  }
  // Memory of a value: counted until the value goes away, or for good.
  void hold(size_t bytes) {
    limits_.bytes -= static_cast<int64_t>(bytes);
    limits_.steps -= static_cast<int64_t>(bytes / 64);  // making bytes takes time too
    if (limits_.bytes < 0) out_of("memory");
    if (limits_.steps < 0) out_of("steps");
  }
  void release(size_t bytes) { limits_.bytes += static_cast<int64_t>(bytes); }
  // Memory in passing: counted until the statement that is being run ends.
  void charge(size_t bytes) {
    hold(bytes);
    passing_ += bytes;
  }
  size_t passing() const { return passing_; }
  void end_statement(size_t passing_before) {
    release(passing_ - passing_before);
    passing_ = passing_before;
  }
  const std::tm* clock() const { return clock_; }

  // Error(corrupt, data): the template cannot do this with these values (a TypeError or UndefinedError in Python).
  [[noreturn]] void fail(const std::string& what) const;
  // Error(unsupported, model): a construct this engine does not know.
  [[noreturn]] void unsupported(const std::string& what) const;
  [[noreturn]] void out_of(const char* what) const;

  // Counts one level of nesting while it lives.
  class Level {
   public:
    explicit Level(Runtime& rt) : rt_(rt) {
      if (++rt_.depth_ > rt_.limits_.depth) rt_.out_of("nesting");
    }
    ~Level() { --rt_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Runtime& rt_;
  };

  int line = 1;  // of the construct being evaluated

 private:
  std::string_view name_;
  Limits limits_;
  const std::tm* clock_;
  int depth_ = 0;
  size_t passing_ = 0;
  std::vector<std::shared_ptr<Object>> kept_;
};

class Value;
class Dict;
struct Generator;
struct Range;
struct View;
using Values = std::vector<Value>;

struct Heap {
  int depth = 0;
  size_t held = 0;           // bytes counted in `owner` while this lives
  Runtime* owner = nullptr;  // null: a literal of the template

  Heap() = default;
  ~Heap() {
    if (owner) owner->release(held);
  }
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  void hold(Runtime& rt, size_t bytes) {
    rt.hold(bytes);
    owner = &rt;
    held += bytes;
  }
};

class Value {
 public:
  Value() : kind_(Kind::none), integer_(0) {}
  explicit Value(bool b) : kind_(Kind::boolean), integer_(b) {}
  explicit Value(int64_t i) : kind_(Kind::integer), integer_(i) {}
  explicit Value(double d) : kind_(Kind::floating), number_(d) {}

  static Value none() { return {}; }
  // `hint` is the whole message of the error that any use but printing, iterating and testing raises.
  static Value undefined(std::string hint);
  static Value string(Runtime& rt, std::string text);
  static Value constant(std::string text);  // a literal of the template: charged to nobody
  static Value list(Runtime& rt, Values items);
  static Value tuple(Runtime& rt, Values items);
  static Value dict(Runtime& rt, Dict dict);
  static Value range(int64_t start, int64_t stop, int64_t step);
  static Value view(Runtime& rt, const char* type, Values items);
  static Value generator(Runtime& rt, const char* type, const Value& source, std::function<bool(Value&)> next);
  static Value object(std::shared_ptr<Object> object);
  static Value function(Runtime& rt, std::string name, const Value& self,
                        std::function<Value(Runtime&, struct Args&)> call);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_number() const { return kind_ == Kind::boolean || kind_ == Kind::integer || kind_ == Kind::floating; }
  bool is_integral() const { return kind_ == Kind::boolean || kind_ == Kind::integer; }
  bool is_sequence() const { return kind_ == Kind::list || kind_ == Kind::tuple; }

  // Requires: the kind it names.
  bool boolean() const { return integer_ != 0; }
  int64_t integer() const { return integer_; }  // also of a boolean
  double number() const { return kind_ == Kind::floating ? number_ : static_cast<double>(integer_); }
  const std::string& text() const;  // a string's characters, an undefined's hint
  const Values& items() const;      // list, tuple, view
  const Dict& dict() const;
  const Range& range() const;
  const View& view() const;
  const Generator& generator() const;
  Object& object() const;
  bool same(const Value& other) const;  // Python's `is`
  int depth() const { return heap_ ? heap_->depth : 0; }

  bool markup() const { return markup_; }  // a string that the filters safe or escape have made
  Value as_markup(bool on = true) const;

 private:
  Kind kind_;
  bool markup_ = false;
  union {
    int64_t integer_;
    double number_;
  };
  std::shared_ptr<Heap> heap_;
};

// Insertion-ordered, keys hashed as Python does (1, 1.0 and True are one key).
class Dict {
 public:
  using Entry = std::pair<Value, Value>;
  const Value* find(Runtime& rt, const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Runtime& rt, Value key, Value value);
  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> index_;
};

struct Range {
  int64_t start, stop, step;
  int64_t size() const;
};

struct View : Heap {
  const char* type;  // "dict_items"
  Values items;
};

// A lazy sequence that is used up by reading it, as Jinja's map, select and items are.
struct Generator : Heap {
  const char* type;
  std::function<bool(Value&)> next;  // false at the end
};

struct Args {
  Values positional;
  std::vector<std::pair<std::string, Value>> keyword;
  const Value* find(std::string_view name) const;
};

class Object : public Heap {
 public:
  virtual ~Object() = default;
  virtual std::string type_name() const = 0;
  virtual std::optional<Value> attribute(Runtime& rt, std::string_view name);
  virtual bool callable() const { return false; }
  virtual Value call(Runtime& rt, Args& args);
  virtual std::string repr(Runtime& rt);
  virtual void clear() {}
};

class Namespace : public Object {
 public:
  std::string type_name() const override { return "Namespace"; }
  std::optional<Value> attribute(Runtime& rt, std::string_view name) override;
  std::string repr(Runtime& rt) override;
  void set(Runtime& rt, const std::string& name, Value value);
  void clear() override { attributes_ = {}; }

 private:
  Dict attributes_;
};

// Binds arguments to parameter names; `required` of them must be given. `what` names the callee in messages.
class Bound {
 public:
  Bound(Runtime& rt, std::string_view what, Args& args, std::initializer_list<const char*> names, size_t required = 0);
  const Value* operator[](size_t i) const { return values_[i] ? &*values_[i] : nullptr; }
  Value get(size_t i, Value fallback) const { return values_[i] ? *values_[i] : std::move(fallback); }
  std::string text(size_t i, std::string fallback) const;  // Throws when it is no string
  int64_t integer(size_t i, int64_t fallback) const;       // Throws when it is no integer
  bool truth(size_t i, bool fallback) const;

 private:
  Runtime& rt_;
  std::string what_;
  std::vector<std::optional<Value>> values_;
  std::vector<const char*> names_;
};

// ---- operations, with Python's meaning ----
std::string type_name(const Value& value);  // "str", "NoneType"
std::string describe(const Value& value);   // "'str object'", "None": the subject of "has no attribute"
bool truth(const Value& value);
std::string to_string(Runtime& rt, const Value& value);  // str(value)
std::string repr(Runtime& rt, const Value& value);
bool equal(Runtime& rt, const Value& a, const Value& b);
int compare(Runtime& rt, const Value& a, const Value& b,
            const char* op);  // for < and its like; Throws where Python does. 2: unordered (NaN)
bool contains(Runtime& rt, const Value& container, const Value& item);
int64_t length(Runtime& rt, const Value& value);
std::optional<int64_t> length_if_sized(const Value& value);

// Items one after another. Throws when the value is not iterable.
std::function<bool(Value&)> iterate(Runtime& rt, const Value& value);
Values to_items(Runtime& rt, const Value& value);

enum class BinaryOp : uint8_t { add, sub, mul, div, floordiv, mod, pow };
Value binary(Runtime& rt, BinaryOp op, const Value& a, const Value& b);
Value negate(Runtime& rt, const Value& a);
Value positive(Runtime& rt, const Value& a);

// a.name and a[key] of Jinja's sandbox: attribute first or item first, an undefined value when there is neither.
Value get_attribute(Runtime& rt, const Value& value, const std::string& name);
Value get_item(Runtime& rt, const Value& value, const Value& key);
// a[start:stop:step]; None for what is left out.
Value get_slice(Runtime& rt, const Value& value, const Value& start, const Value& stop, const Value& step);
Value call(Runtime& rt, const Value& callee, Args& args);

}  // namespace hayfork::engine::jinja
