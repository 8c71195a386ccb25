#include "api/openai/responses/response_window.hpp"

#include "runtime/support/json/json.hpp"
#include "runtime/support/json/json_digits.hpp"
#include "runtime/support/json/json_object.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

namespace troupe {

namespace {

struct chat_piece {
  std::string role, text; // JSON
};

std::string_view role_of(json::value message) {
  std::string_view role;
  return message["role"].get(role) ? std::string_view() : role;
}

std::vector<chat_piece> pieces_of(const std::string& list) {
  const auto document = json::document::parse(list, "the conversation", errc::internal);
  std::vector<chat_piece> result;
  for (auto one : json::array(document.root()))
    result.push_back({std::string(role_of(one)), json::minified(one)});
  return result;
}

/// The parts of a message's content, separated by commas.
std::string parts_of(json::value message) {
  const auto content = message["content"].value();
  std::string_view text;
  if (!content.get(text))
    return json_object().text("type", "text").text("text", text).str();
  const auto list = json::minified(content);
  return list.substr(1, list.size() - 2);
}

std::string with_one_system_message(const std::string& list) {
  const auto document = json::document::parse(list, "the conversation", errc::internal);
  const json::array all(document.root());
  const auto is_system = [](json::value one) { return role_of(one) == "system"; };
  const auto others = std::find_if_not(all.begin(), all.end(), is_system);
  std::string parts;
  for (auto it = all.begin(); it != others; ++it) {
    const auto more = parts_of(*it);
    parts += (parts.empty() || more.empty() ? "" : ",") + more;
  }
  std::string result = "[" + json_object().text("role", "system").raw("content", '[' + parts + ']').str();
  for (auto it = others; it != all.end(); ++it)
    result += ',' + json::minified(*it);
  return result + ']';
}

/// System messages, and all others from `first` on.
std::string kept_from(const std::vector<chat_piece>& all, std::size_t first) {
  std::vector<std::string_view> kept;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i >= first || all[i].role == "system")
      kept.push_back(all[i].text);
  return json_list(kept);
}

} // namespace

std::string listed_messages(const std::string& instructions, const std::string& conversation) {
  constexpr std::string_view system = R"({"role":"system")";
  if (instructions.empty())
    return conversation.starts_with(system) ? with_one_system_message('[' + conversation + ']')
                                            : '[' + conversation + ']';
  const auto first = json_object().text("role", "system").text("content", instructions).str();
  const auto list = '[' + first + (conversation.empty() ? "" : ",") + conversation + ']';
  return conversation.starts_with(system) ? with_one_system_message(list) : list;
}

std::string newest_messages(const std::string& messages, const std::function<bool(const std::string&)>& fits) {
  if (fits(messages))
    return messages;
  const auto all = pieces_of(messages);
  std::vector<std::size_t> turns, others; // where what is kept may begin
  for (std::size_t i = 1; i < all.size(); ++i)
    if (all[i].role == "user")
      turns.push_back(i);
    else if (all[i].role == "assistant")
      others.push_back(i);
  for (const auto* starts : {&turns, &others}) {
    // Fewer messages are fewer tokens.
    const auto found = std::partition_point(starts->begin(), starts->end(),
                                            [&](std::size_t first) { return !fits(kept_from(all, first)); });
    if (found != starts->end())
      return kept_from(all, *found);
  }
  return messages;
}

} // namespace troupe
