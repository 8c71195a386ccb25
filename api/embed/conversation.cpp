#include "api/embed/conversation.hpp"

#include "runtime/chat/chat_template.hpp"
#include "runtime/chat/output/chat_output_parser.hpp"
#include "runtime/chat/whole_prompt.hpp"
#include "runtime/engine/judged_prompt.hpp"
#include "runtime/model/default_sampling.hpp"
#include "runtime/sampling/random_seed.hpp"
#include "runtime/support/json/json.hpp"

#include <limits>
#include <random>
#include <utility>

namespace troupe {

namespace {

/// Makes the random part of a call's id.
std::string random_letters() {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  std::random_device source;
  std::uniform_int_distribution<std::size_t> any(0, letters.size() - 1);
  std::string result;
  for (int i = 0; i < 24; ++i)
    result += letters[any(source)];
  return result;
}

jinja::value parsed(const std::string& text, const std::string& what) {
  const auto document = json::document::parse(text, what, errc::bad_request);
  return jinja::from_json(document.root());
}

jinja::value value_of(const chat_turn& turn) {
  jinja::dict fields;
  fields.set("role", turn.role);
  fields.set("content", turn.content);
  if (!turn.call_id.empty())
    fields.set("tool_call_id", turn.call_id);
  if (turn.calls.empty())
    return fields;
  std::vector<jinja::value> calls;
  for (const auto& call : turn.calls) {
    jinja::dict function, item;
    function.set("name", call.name);
    function.set("arguments", parsed(call.arguments, "the arguments of a call of `" + call.name + '`'));
    item.set("type", "function");
    item.set("id", call.id);
    item.set("function", function);
    calls.emplace_back(std::move(item));
  }
  fields.set("tool_calls", jinja::value::list(std::move(calls)));
  return fields;
}

jinja::value value_of(const tool_offer& tool) {
  jinja::dict function, item;
  function.set("name", tool.name);
  function.set("description", tool.description);
  function.set("parameters",
               tool.parameters.empty() ? jinja::value(jinja::dict())
                                       : parsed(tool.parameters, "the schema of the tool `" + tool.name + '`'));
  item.set("type", "function");
  item.set("function", function);
  return item;
}

template <class T>
jinja::value list_of(const std::vector<T>& all) {
  std::vector<jinja::value> items;
  for (const auto& one : all)
    items.push_back(value_of(one));
  return jinja::value::list(std::move(items));
}

whole_prompt rendered(const model_info& model, const question& asked) {
  if (!model.chat)
    throw failure(errc::unsupported, model.id + " has no chat template: ask it to continue a text");
  chat_template::arguments arguments;
  plain_marks marks([&](std::string_view text) { return model.tokenizer->specials_in(text); });
  if (!asked.tools.empty())
    arguments.tools = marks.on(list_of(asked.tools));
  const auto render = [&](const jinja::value& messages) {
    arguments.messages = messages;
    return model.chat->render(arguments);
  };
  return render_whole(list_of(asked.messages), render, marks);
}

/// Lets `to` follow the format in which the model answers this prompt. Null: the text is the content.
std::shared_ptr<const chat_output> follow(const model_info& model, const question& asked, const std::string& prompt,
                                          generation& to) {
  chat_output what;
  what.format = model.format;
  for (const auto& tool : asked.tools) {
    what.tools.emplace_back(tool.name, tool.parameters);
    what.tools.back().position = what.tools.size() - 1;
  }
  what.note_prompt(prompt);
  if (!what.is_needed())
    return nullptr;
  what.constrain(to.sampling.techniques);
  to.shown_tokens = model.markers;
  return std::make_shared<const chat_output>(std::move(what));
}

void refuse_negative(const std::string& name, std::int64_t value) {
  if (value < 0)
    refuse_field(name, "must be 0 (no limit of its own) or more, not " + std::to_string(value));
}

} // namespace

prepared_question prepare(const model_info& model, const question& asked) {
  refuse_negative("max_tokens", asked.max_tokens);
  refuse_negative("timeout", asked.timeout.count());
  if (!model.tokenizer)
    throw failure(errc::unsupported, model.id + " has no tokenizer: submit token ids");
  prepared_question result;
  auto& request = result.request;
  request.sampling = asked.sampling.value_or(default_sampling(model.defaults, sampling_convention::local));
  if (asked.seed || request.sampling.seed == 0)
    request.sampling.seed = asked.seed.value_or(random_seed());
  request.timeout = asked.timeout;
  request.sampling.max_tokens = asked.max_tokens > 0 ? asked.max_tokens : std::numeric_limits<int>::max();
  if (asked.messages.empty()) {
    request.prompt = model.tokenizer->encode(asked.text, true);
    return result; // a judge reads the text of its tokens
  }
  const auto prompt = rendered(model, asked);
  request.prompt = model.tokenizer->encode_around(prompt.text, false, prompt.plain_at);
  if (request.sampling.judged()) {
    const auto messages = list_of(asked.messages);
    request.sampling.judged_behind = judged_prompt_of(model.tokenizer->decode(request.prompt, true), &messages);
  }
  result.output = follow(model, asked, prompt.text, request);
  return result;
}

struct answer_reader::state {
  std::optional<chat_output_parser> parser; // none: the text is the content
  bool ended = false;
  full_answer so_far;

  std::string add(const output_deltas& deltas) {
    std::string content;
    for (const auto& delta : deltas)
      switch (delta.what) {
        case output_delta::kind::content: content += delta.text; break;
        case output_delta::kind::reasoning: so_far.reasoning += delta.text; break;
        case output_delta::kind::call_begin: so_far.calls.push_back({delta.text, {}, delta.id}); break;
        case output_delta::kind::call_arguments: so_far.calls.at(delta.call).arguments += delta.text; break;
      }
    so_far.text += content;
    return content;
  }
};

answer_reader::answer_reader(const prepared_question& of) : state_(std::make_unique<state>()) {
  if (of.output)
    state_->parser.emplace(of.output, random_letters());
}

answer_reader::~answer_reader() = default;
answer_reader::answer_reader(answer_reader&&) noexcept = default;
answer_reader& answer_reader::operator=(answer_reader&&) noexcept = default;

std::string answer_reader::add(const token_event& e) {
  auto& s = *state_;
  if (e.index != 0 || s.ended)
    return {};
  if (e.finish)
    s.so_far.finish = *e.finish;
  s.ended = e.finish.has_value();
  if (!s.parser) {
    s.so_far.text += e.text;
    return e.text;
  }
  auto content = s.add(s.parser->feed(e.text));
  if (s.ended)
    content += s.add(s.parser->finish());
  return content;
}

full_answer answer_reader::finish(const done_event& done) && {
  auto& s = *state_;
  if (s.parser && !std::exchange(s.ended, true))
    s.add(s.parser->finish());
  if (!done.choices.empty())
    s.so_far.finish = done.choices.front().reason;
  s.so_far.done = done;
  return std::move(s.so_far);
}

} // namespace troupe
