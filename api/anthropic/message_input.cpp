#include "api/anthropic/message_input.hpp"

#include "api/openai/chat_messages.hpp"
#include "api/openai/responses/item_fields.hpp"
#include "runtime/support/json/json_object.hpp"

namespace troupe {

namespace {

/// Claude Code's first system block. It differs in every request, so that no prefix could be shared behind it.
constexpr std::string_view billing = "x-anthropic-billing-header:";

/// Calls `use` with each block of a member that is a list of them.
template <class Use>
void for_each_block(const field_reader& of, std::string_view key, json::array blocks, Use use) {
  check_entries(of, key, blocks.size(), most_messages);
  std::size_t number = 0;
  for (auto given : blocks) {
    const auto name = item_path(key, number++);
    if (!given.is_object())
      of.refuse(name, "an object", given);
    use(field_reader(given, of.path(name)));
  }
}

std::string text_of_block(const field_reader& block);

/// The text of a member that is one, or a list of blocks.
std::string joined_text(const field_reader& of, std::string_view key) {
  const auto content = of.find(key);
  if (!content)
    return {};
  std::string_view text;
  if (!content->get(text))
    return std::string(text);
  json::array blocks;
  if (content->get(blocks))
    of.refuse(key, "a string or a list of content blocks", *content);
  std::string result;
  for_each_block(of, key, blocks, [&](const field_reader& block) {
    const auto more = text_of_block(block);
    result += result.empty() || more.empty() ? more : '\n' + more;
  });
  return result;
}

[[noreturn]] void refuse_block(const field_reader& block, std::string_view type) {
  unsupported_value(block.path("type"), "is \"" + std::string(type) + "\"; " + why_text_only(type));
}

std::string text_of_document(const field_reader& block) {
  const auto source = block.object("source");
  if (!source)
    block.refuse("source", "is required");
  const auto type = needed_text(*source, "type");
  std::string result(block.text("title").value_or(""));
  result += result.empty() ? "" : "\n";
  if (type == "text")
    return result += needed_text(*source, "data");
  if (type == "content")
    return result += joined_text(*source, "content");
  refuse_block(*source, type);
}

std::string text_of_block(const field_reader& block) {
  const auto type = needed_text(block, "type");
  if (type == "text")
    return std::string(needed_text(block, "text"));
  if (type == "document")
    return text_of_document(block);
  if (type == "search_result")
    return std::string(block.text("title").value_or("")) + '\n' + joined_text(block, "content");
  if (type == "tool_reference") // to a tool that a search found
    return std::string(needed_text(block, "tool_name"));
  refuse_block(block, type);
}

class chat_turns {
public:
  explicit chat_turns(message_input& to) : to_(to) {}

  /// What is added next belongs to a message of `role`: the one before, if that is of the same.
  void begin(std::string_view role, std::string path) {
    if (role == role_)
      return;
    end();
    role_ = role;
    path_ = std::move(path);
  }
  void add_text(std::string_view text) {
    // Blocks of an answer are parts of one text; others are texts of their own.
    if (!text_.empty() && !text.empty() && role_ != "assistant")
      text_ += '\n';
    text_ += text;
    said_ = true;
  }
  void add_reasoning(std::string_view text) { reasoning_ += text; }
  void add_call(const field_reader& block) {
    const auto input = block.find("input");
    if (input && !input->is_object())
      block.refuse("input", "an object", *input);
    json_object function;
    function.text("name", needed_text(block, "name")).raw("arguments", input ? json::minified(*input) : "{}");
    calls_.push_back(
      json_object().text("id", needed_text(block, "id")).text("type", "function").object("function", function).str());
  }
  void add_result(const field_reader& block) {
    end();
    auto content = joined_text(block, "content");
    if (content.empty() && block.boolean("is_error").value_or(false))
      content = "Error";
    append(json_object()
             .text("role", "tool")
             .text("tool_call_id", needed_text(block, "tool_use_id"))
             .text("content", content),
           block.path());
  }
  /// Ends the message under way. An empty one is left out, unless it is a user's: templates wait for these.
  void end() {
    if (!text_.empty() || !reasoning_.empty() || !calls_.empty() || (said_ && role_ == "user")) {
      json_object message;
      message.text("role", role_);
      if (text_.empty() && !calls_.empty())
        message.null("content");
      else
        message.text("content", text_);
      if (!reasoning_.empty())
        message.text("reasoning_content", reasoning_);
      if (!calls_.empty())
        message.list("tool_calls", calls_);
      append(message, path_);
      to_.continues = role_ == "assistant" && calls_.empty() && !text_.empty();
    }
    role_.clear(), text_.clear(), reasoning_.clear(), calls_.clear();
    said_ = false;
  }

private:
  void append(const json_object& message, std::string path) {
    to_.paths.emplace_back(item_path("messages", to_.messages.size()), std::move(path));
    to_.messages.push_back(message.str());
    to_.continues = false;
  }

  message_input& to_;
  std::string role_, path_, text_, reasoning_;
  std::vector<std::string> calls_;
  bool said_ = false; // perhaps an empty text
};

void add_system(const field_reader& of, std::string_view key, chat_turns& to) {
  json::array blocks;
  if (const auto given = of.find(key); !given || given->get(blocks))
    return to.add_text(joined_text(of, key));
  for_each_block(of, key, blocks, [&](const field_reader& block) {
    if (const auto text = text_of_block(block); !text.starts_with(billing))
      to.add_text(text);
  });
}

/// A user's texts and results of tools. Results come first, as they answer the calls before them.
void add_user(const field_reader& message, json::array blocks, chat_turns& to) {
  const auto is_result = [](const field_reader& block) { return block.text("type") == "tool_result"; };
  for_each_block(message, "content", blocks, [&](const field_reader& block) {
    if (is_result(block))
      to.add_result(block);
  });
  for_each_block(message, "content", blocks, [&](const field_reader& block) {
    if (is_result(block))
      return;
    to.begin("user", message.path());
    to.add_text(text_of_block(block));
  });
}

void add_assistant(const field_reader& message, json::array blocks, chat_turns& to) {
  to.begin("assistant", message.path());
  for_each_block(message, "content", blocks, [&](const field_reader& block) {
    const auto type = needed_text(block, "type");
    if (type == "thinking")
      to.add_reasoning(needed_text(block, "thinking"));
    else if (type == "tool_use")
      to.add_call(block);
    else if (type != "redacted_thinking") // which only who wrote it can read
      to.add_text(text_of_block(block));
  });
}

} // namespace

message_input read_message_input(const field_reader& body) {
  message_input result;
  chat_turns turns(result);
  turns.begin("system", "system");
  add_system(body, "system", turns);
  const auto messages = body.list("messages", most_messages);
  if (!messages)
    body.refuse("messages", "is required");
  if (messages->size() == 0)
    body.refuse("messages", "must have at least one message");
  for_each_block(body, "messages", *messages, [&](const field_reader& message) {
    const auto role = needed_text(message, "role");
    const auto content = message.find("content");
    if (!content)
      message.refuse("content", "is required");
    if (role != "user" && role != "assistant" && role != "system")
      message.refuse("role", "must be \"user\", \"assistant\" or \"system\", not \"" + std::string(role) + '"');
    json::array blocks;
    const bool is_list = !content->get(blocks);
    if (role == "system") {
      turns.begin("system", message.path());
      add_system(message, "content", turns);
      return;
    }
    if (!is_list) {
      turns.begin(role, message.path());
      turns.add_text(joined_text(message, "content"));
    } else if (role == "user") {
      add_user(message, blocks, turns);
    } else {
      add_assistant(message, blocks, turns);
    }
  });
  turns.end();
  return result;
}

} // namespace troupe
