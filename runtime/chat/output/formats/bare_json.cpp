// Llama 3 and models without a format of their own: the answer is the call, {"name": ..., "parameters": {...}}, or
// several of them with semicolons between; Llama may begin it with <|python_tag|>.
#include "runtime/chat/output/call_object.hpp"
#include "runtime/chat/output/formats/formats.hpp"

namespace troupe {

namespace {

constexpr std::string_view python_tag = "<|python_tag|>";

/// Objects, or a list of them.
class bare_objects : public call_attempt {
public:
  explicit bare_objects(delta_sink& out) : out_(out), object_(out), list_(out) {}

  reading take(char c) override {
    switch (at_) {
      case at::start:
        if (is_space(c))
          return reading::more;
        at_ = c == '[' ? at::list : at::object;
        return take(c);
      case at::list: {
        const auto how = list_.take(c);
        if (how != reading::done)
          return how;
        at_ = at::end;
        return reading::settled;
      }
      case at::object: {
        const auto how = object_.take(c);
        if (how != reading::done)
          return how;
        at_ = at::behind;
        return reading::settled;
      }
      case at::behind:
        if (is_space(c))
          return reading::more;
        object_ = call_object(out_);
        at_ = at::object;
        return c == ';' ? reading::more : reading::failed;
      case at::end: break;
    }
    return is_space(c) ? reading::more : reading::failed;
  }

private:
  enum class at : std::uint8_t { start, list, object, behind, end };

  delta_sink& out_;
  at at_ = at::start;
  call_object object_;
  call_list list_;
};

class bare_json : public call_format {
public:
  constexpr bare_json(std::string_view name, std::string_view arguments, bool has_tag)
    : call_format(name), arguments_(arguments), has_tag_(has_tag) {}

  bool is_used_by(std::string_view chat_template) const override {
    return has_tag_ &&
      (chat_template.find(python_tag) != chat_template.npos ||
       chat_template.find("{\"name\": function name, \"parameters\":") != chat_template.npos);
  }
  std::vector<std::string_view> markers() const override {
    return has_tag_ ? std::vector{python_tag} : std::vector<std::string_view>();
  }
  std::unique_ptr<call_reader> reader(delta_sink& out) const override {
    const auto make = [&out](std::string_view) { return std::make_unique<bare_objects>(out); };
    return std::make_unique<call_search>(out, markers(), make, true);
  }
  call_layout layout() const override { return {.separator = "; "}; }
  call_tag tag(const offered_tool& tool) const override {
    return {"{\"name\": \"" + tool.name + "\", \"" + std::string(arguments_) + "\": ", json_arguments(tool), "}"};
  }

private:
  std::string_view arguments_;
  bool has_tag_;
};

constinit const bare_json llama3_json_format("llama3_json", "parameters", true);
constinit const bare_json json_format("json", "arguments", false);

} // namespace

const call_format& llama3_json_calls() { return llama3_json_format; }
const call_format& json_calls() { return json_format; }

} // namespace troupe
