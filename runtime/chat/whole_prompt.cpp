#include "runtime/chat/whole_prompt.hpp"

#include "runtime/chat/output/reasoning_format.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

namespace troupe {

namespace {

using render_function = std::function<std::string(const jinja::value&)>;

/// The prompt that `make` gives, or nothing if the template refuses it.
template <class Make>
std::optional<std::string> attempt(Make make) {
  try {
    return make();
  } catch (const failure& f) {
    if (f.what_failed().code != errc::bad_request)
      throw;
  } catch (const jinja::fault&) { // too large for a template
  }
  return std::nullopt;
}

/// That of the messages in another shape.
std::optional<std::string> try_render(const render_function& render, const chat_messages& messages,
                                      const message_moves& how) {
  return attempt([&] { return render(jinja::value::list(moved(messages, how))); });
}

// -- the usual case: texts are found in the prompt ----------------------------

/// Moves `at` behind the next place of `text`.
bool pass(std::string_view prompt, std::string_view text, std::size_t& at) {
  // memmem() is linear for all inputs, string_view::find is not.
  const auto rest = prompt.substr(at);
  const auto* hit = static_cast<const char*>(memmem(rest.data(), rest.size(), text.data(), text.size()));
  if (!hit)
    return false;
  at = static_cast<std::size_t>(hit - prompt.data()) + text.size();
  return true;
}

/// Passes a text as `pass` does, also one that is written as JSON.
bool pass_text(std::string_view prompt, std::string_view text, std::size_t& at) {
  text = trimmed(text);
  if (text.empty() || pass(prompt, text, at))
    return true;
  auto meter = jinja::meter::unlimited();
  const auto json = jinja::to_json(meter, jinja::value(text));
  return pass(prompt, std::string_view(json).substr(1, json.size() - 2), at);
}

/// What a template shows of an answer: not its reasoning.
std::string_view without_reasoning(std::string_view text) {
  constexpr std::string_view end = "</think>";
  const auto found = text.rfind(end);
  return found == text.npos ? text : text.substr(found + end.size());
}

/// Whether the prompt has all texts, one behind the other. If it has not, they may stand in another order, or otherwise.
bool shows_in_order(std::string_view prompt, const chat_messages& messages) {
  std::size_t at = 0;
  for (const auto& message : messages) {
    if (!pass_text(prompt, without_reasoning(text_of_message(message)), at))
      return false;
    for (const auto& call : calls_of_message(message)) {
      const auto* function = call.map().find("function");
      const auto* name = function && function->is(jinja::kind::dict) ? function->map().find("name") : nullptr;
      if (name && name->is_string() && !pass(prompt, name->str(), at))
        return false;
    }
  }
  return true;
}

// -- else: a rendering of the same conversation with marks for texts ----------

/// Digits, which no change of case, quoting or trimming alters.
constexpr std::string_view mark_begin = "7391", mark_end = "5028";
constexpr std::size_t mark_digits = 6;

std::string mark_of(std::size_t number) {
  const auto digits = std::to_string(number);
  return std::string(mark_begin) + std::string(mark_digits - std::min(mark_digits, digits.size()), '0') + digits +
    std::string(mark_end);
}

/// The numbers below `count` whose marks a rendering lacks.
std::vector<std::size_t> missing_marks(std::string_view rendering, std::size_t count) {
  std::vector<bool> found(count);
  for (std::size_t at = 0; pass(rendering, mark_begin, at);) {
    const auto digits = rendering.substr(at, mark_digits);
    if (digits.size() < mark_digits || digits.find_first_not_of("0123456789") != digits.npos ||
        !rendering.substr(at + mark_digits).starts_with(mark_end))
      continue;
    if (const auto number = std::stoul(std::string(digits)); number < count)
      found[number] = true;
  }
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < count; ++i)
    if (!found[i])
      result.push_back(i);
  return result;
}

/// The conversation with a mark in the place of each text, and of the arguments of each call.
struct marked_chat {
  chat_messages messages;
  std::vector<std::size_t> message_of_mark;

  explicit marked_chat(const chat_messages& of) {
    for (const auto& message : of) {
      auto members = message.map();
      if (!trimmed(text_of_message(message)).empty())
        members.set("content", next_mark());
      auto calls = calls_of_message(message);
      for (auto& call : calls)
        if (const auto* arguments = arguments_of_call(call))
          call = with_arguments(call, marked_arguments(*arguments));
      if (!calls.empty())
        members.set("tool_calls", jinja::value::list(std::move(calls)));
      messages.emplace_back(std::move(members));
    }
  }

  /// The numbers of messages of which the rendering lacks something, each once.
  std::vector<std::size_t> missing_in(std::string_view rendering) const {
    std::vector<std::size_t> result;
    for (const auto mark : missing_marks(rendering, message_of_mark.size()))
      if (result.empty() || result.back() != message_of_mark[mark])
        result.push_back(message_of_mark[mark]);
    return result;
  }

private:
  jinja::value next_mark() {
    message_of_mark.push_back(messages.size());
    return jinja::value(mark_of(message_of_mark.size() - 1));
  }

  jinja::value marked_arguments(const jinja::value& arguments) {
    if (arguments.is_string())
      return next_mark();
    if (!arguments.is(jinja::kind::dict) || arguments.map().size() == 0)
      return arguments;
    jinja::dict result;
    for (const auto& [name, value] : arguments.map().entries())
      result.set(name.str(), nullptr);
    result.set(arguments.map().entries().front().first.str(), next_mark());
    return jinja::value(std::move(result));
  }
};

/// Whether the template shows what users say at all. Some that tests and classifiers bring do not.
bool shows_users(const render_function& render) {
  jinja::dict message;
  message.set("role", "user");
  message.set("content", mark_of(0));
  const auto shown = try_render(render, {jinja::value(std::move(message))}, {});
  return shown && shown->find(mark_of(0)) != shown->npos;
}

/// Whether there are texts of users, and the prompt has none of them.
bool hides_users(std::string_view prompt, const chat_messages& messages) {
  constexpr std::size_t most_looks = 16;
  std::size_t looks = 0;
  for (const auto& message : messages) {
    std::size_t at = 0;
    if (role_of_message(message) != "user" || trimmed(text_of_message(message)).empty())
      continue;
    if (++looks > most_looks || pass_text(prompt, text_of_message(message), at))
      return false;
  }
  return looks > 0;
}

// -- shapes, tried one by one --------------------------------------------------

constexpr std::size_t most_tries = 48;
constexpr std::size_t most_tried_messages = std::size_t{1} << 16; // over all tries but the first few

class shape_search {
public:
  shape_search(const chat_messages& messages, const render_function& render, bool demands)
    : marked_(messages), render_(render), demands_(demands) {
    tries_ = std::clamp(most_tried_messages / std::max<std::size_t>(messages.size(), 1), std::size_t{8}, most_tries);
  }

  /// What the shape leaves out; nothing if the template refuses it.
  std::optional<std::vector<std::size_t>> lost_by(const message_moves& how) {
    if (tries_ == 0)
      return std::nullopt;
    --tries_;
    const auto rendering = try_render(render_, marked_.messages, how);
    if (!rendering)
      return std::nullopt;
    return demands_ ? marked_.missing_in(*rendering) : std::vector<std::size_t>();
  }

private:
  marked_chat marked_;
  const render_function& render_;
  bool demands_;
  std::size_t tries_;
};

/// How templates may want calls. Null content stays as long as it can, because some know by it that there are calls.
constexpr auto spellings = std::to_array<message_moves>({
  {},
  {.text_arguments = true},
  {.empty_content = true},
  {.empty_content = true, .text_arguments = true},
  {.dict_arguments = true},
  {.empty_content = true, .dict_arguments = true},
});

message_moves spelled(message_moves how, const message_moves& spelling) {
  how.empty_content = spelling.empty_content;
  how.text_arguments = spelling.text_arguments;
  how.dict_arguments = spelling.dict_arguments;
  return how;
}

/// `all` without the moves that are not needed to lose so few.
message_moves reduced(shape_search& search, message_moves all, std::size_t most_lost) {
  for (const auto& kind : move_kinds) {
    if (!(all.*kind.is))
      continue;
    all.*kind.is = false;
    const auto lost = search.lost_by(all);
    if (!lost || lost->size() > most_lost)
      all.*kind.is = true;
  }
  return all;
}

std::vector<std::string> notes_on(const message_moves& how) {
  std::string told;
  for (const auto& kind : move_kinds)
    if (how.*kind.is)
      told += (told.empty() ? "" : ", ") + std::string(kind.told);
  if (told.empty())
    return {};
  return {"moved, as the chat template has no other place for all texts: " + told};
}

/// "the chat template leaves out `messages[1]`, `messages[3]`"
std::string note_on_lost(std::string_view list, const std::vector<std::size_t>& lost) {
  constexpr std::size_t most_named = 4;
  std::string result = "the chat template leaves out ";
  for (std::size_t i = 0; i < std::min(lost.size(), most_named); ++i)
    result.append(i == 0 ? "`" : ", `").append(list) += '[' + std::to_string(lost[i]) + "]`";
  return lost.size() > most_named ? result + " and " + std::to_string(lost.size() - most_named) + " more" : result;
}

// -- tools ---------------------------------------------------------------------

/// The dict that has the name: OpenAI's `function`, or the tool itself.
const jinja::dict& function_of(const jinja::value& tool) {
  const auto* function = tool.map().find("function");
  return function && function->is(jinja::kind::dict) ? function->map() : tool.map();
}

/// Whether the prompt has all names and descriptions, one behind the other.
bool shows_tools_in_order(std::string_view prompt, const std::vector<jinja::value>& tools) {
  std::size_t at = 0;
  for (const auto& tool : tools)
    for (const auto* key : {"name", "description"}) {
      const auto* text = function_of(tool).find(std::string_view(key));
      if (text && text->is_string() && !pass_text(prompt, text->str(), at))
        return false;
    }
  return true;
}

/// The tools with marks for names.
jinja::value marked_tools(const std::vector<jinja::value>& tools) {
  std::vector<jinja::value> result;
  for (const auto& tool : tools) {
    auto function = function_of(tool);
    function.set("name", mark_of(result.size()));
    auto all = tool.map();
    if (all.find("function"))
      all.set("function", jinja::value(std::move(function)));
    result.emplace_back(all.find("function") ? std::move(all) : std::move(function));
  }
  return jinja::value::list(std::move(result));
}

/// The sets of moves to begin with, from which those are taken away that are not needed.
std::vector<message_moves> beginnings(const chat_messages& messages) {
  const auto all = moves_for(messages);
  auto with_calls = all;
  with_calls.calls_as_text = with_calls.results_as_users = false;
  auto few = with_calls;
  few.text_before_calls = few.empty_users = false;
  std::vector<message_moves> result{{}};
  for (const auto& one : {with_calls, few, all})
    if (std::ranges::find(result, one) == result.end())
      result.push_back(one);
  return result;
}

// -- special tokens that texts write out ------------------------------------------

/// One that nobody can write, as nobody knows it ahead; digits, which no change of case, quoting or trimming alters.
std::string mark_of_plain() { return "6284" + std::to_string(std::random_device()()) + "1907"; }

/// Whether the token closes reasoning, or opens it or begins to.
bool is_about_reasoning(std::string_view token) {
  return std::ranges::any_of(reasoning_formats(), [token](const reasoning_format& each) {
    return each.begin().starts_with(token) || each.end() == token;
  });
}

whole_prompt render_shaped(const jinja::value& given, const render_function& render) {
  const auto& messages = given.seq().items;
  whole_prompt result;
  std::optional<failure> refusal;
  std::vector<std::size_t> lost;
  try {
    result.text = render(given);
    if (shows_in_order(result.text, messages) || hides_users(result.text, messages))
      return result;
  } catch (const failure& f) {
    if (f.what_failed().code != errc::bad_request)
      throw;
    refusal = f;
  }
  shape_search search(messages, render, !refusal || shows_users(render));
  if (!refusal && (lost = search.lost_by({}).value_or(lost)).empty())
    return result;
  for (const auto& beginning : beginnings(messages))
    for (const auto& spelling : spellings) {
      const auto how = spelled(beginning, spelling);
      const auto left_out = search.lost_by(how);
      if (!left_out) // how calls are spelt matters where they are refused
        continue;
      if (refusal || left_out->size() < lost.size()) {
        const auto least = reduced(search, how, left_out->size());
        if (auto text = try_render(render, messages, least)) {
          result = {*std::move(text), notes_on(least)};
          lost = *left_out;
          refusal.reset();
        }
      }
      if (!refusal && lost.empty())
        return result;
      break;
    }
  if (refusal)
    throw *refusal;
  result.notes.push_back(note_on_lost("messages", lost));
  return result;
}

} // namespace

jinja::value plain_marks::on(const jinja::value& of) { return specials_ ? marked(of, false).value_or(of) : of; }

std::optional<std::string> plain_marks::marked_text(const std::string& text, bool said) {
  std::string result;
  std::size_t done = 0;
  for (const auto token : specials_(text)) {
    if (said && is_about_reasoning(token))
      continue;
    if (mark_.empty())
      mark_ = mark_of_plain();
    if (!tokens_.contains(token))
      tokens_.emplace(token);
    const auto at = static_cast<std::size_t>(token.data() - text.data());
    result.append(text, done, at - done).append(mark_);
    done = at;
  }
  return result.empty() ? std::nullopt : std::optional(std::move(result.append(text, done)));
}

std::optional<jinja::value> plain_marks::marked(const jinja::value& of, bool said) {
  if (of.is_string()) {
    auto text = marked_text(of.str(), said);
    return text ? std::optional<jinja::value>(*std::move(text)) : std::nullopt;
  }
  if (of.is(jinja::kind::sequence)) {
    std::optional<std::vector<jinja::value>> result;
    for (std::size_t i = 0; i < of.seq().items.size(); ++i)
      if (auto item = marked(of.seq().items[i], said)) {
        if (!result)
          result = of.seq().items;
        (*result)[i] = *std::move(item);
      }
    return result ? std::optional(jinja::value::list(*std::move(result))) : std::nullopt;
  }
  if (!of.is(jinja::kind::dict))
    return std::nullopt;
  const auto* role = of.map().find("role");
  if (role && role->is_string() && !specials_(role->str()).empty())
    throw failure(errc::bad_request, "a `role` must not have a special token", "messages");
  said |= role && role->is_string() && role->str() == "assistant";
  jinja::dict result;
  bool changed = false;
  for (const auto& [name, value] : of.map().entries()) {
    auto other_name = marked_text(name.str(), said);
    auto member = marked(value, said);
    changed |= other_name || member;
    result.set(other_name ? *other_name : name.str(), member ? *std::move(member) : value);
  }
  return changed ? std::optional<jinja::value>(std::move(result)) : std::nullopt;
}

// The greatest token that is not above `text` begins it, or every token that does also begins what these two share.
bool plain_marks::is_marked(std::string_view text) const {
  for (auto after = tokens_.upper_bound(text); after != tokens_.begin(); after = tokens_.upper_bound(text)) {
    const std::string_view before = *std::prev(after);
    if (text.starts_with(before))
      return true;
    const auto shared = std::ranges::mismatch(text, before).in1 - text.begin();
    text = text.substr(0, static_cast<std::size_t>(shared));
  }
  return false;
}

std::string plain_marks::without(std::string_view text, std::vector<std::size_t>& plain_at) const {
  std::string result;
  std::size_t done = 0;
  for (std::size_t at = 0; !mark_.empty() && pass(text, mark_, at); done = at) {
    result.append(text.substr(done, at - mark_.size() - done));
    if (is_marked(text.substr(at)))
      plain_at.push_back(result.size());
  }
  return result.append(text.substr(done));
}

whole_prompt render_whole(const jinja::value& given, const render_function& render, plain_marks marks, bool continues) {
  auto messages = given;
  if (continues && given.truth()) {
    auto earlier = given.seq().items;
    const auto last = std::move(earlier.back());
    earlier.pop_back();
    earlier = marks.on(jinja::value::list(std::move(earlier))).seq().items;
    earlier.push_back(last);
    messages = jinja::value::list(std::move(earlier));
  } else {
    messages = marks.on(given);
  }
  try {
    auto result = render_shaped(messages, render);
    result.text = marks.without(result.text, result.plain_at);
    return result;
  } catch (const failure& f) { // a template may quote what it refuses
    std::vector<std::size_t> nobody_asks;
    auto why = f.what_failed();
    why.message = marks.without(why.message, nobody_asks);
    throw failure(std::move(why));
  }
}

std::optional<std::string> note_on_tools(const jinja::value& given, std::string_view prompt,
                                         const render_function& render) {
  if (!given.is(jinja::kind::sequence) || shows_tools_in_order(prompt, given.seq().items))
    return std::nullopt;
  const auto& tools = given.seq().items;
  const auto rendering = attempt([&] { return render(marked_tools(tools)); });
  if (!rendering)
    return std::nullopt;
  const auto lost = missing_marks(*rendering, tools.size());
  if (lost.empty())
    return std::nullopt;
  return lost.size() == tools.size() ? "the chat template shows none of the `tools`" : note_on_lost("tools", lost);
}

} // namespace troupe
