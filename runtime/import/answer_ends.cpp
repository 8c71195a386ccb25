#include "runtime/import/answer_ends.hpp"

#include "runtime/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <array>

namespace troupe {

namespace {

using names = std::array<std::string_view, 2>;

/// Two ends of answers in formats whose answers are several messages. Where both are there, `<|end|>` is none.
constexpr std::array<names, 2> ends_of_many_messages{{{"<|return|>", "<|call|>"}, {"<|flush|>", "<|calls|>"}}};
constexpr std::string_view message_end = "<|end|>";

constexpr std::array<std::string_view, 15> always{"<|eot_id|>",
                                                  "<|eom_id|>",
                                                  "<|eot|>",
                                                  "<|eom|>",
                                                  "<|im_end|>",
                                                  message_end,
                                                  "<|endoftext|>",
                                                  "<|end_of_text|>",
                                                  "<end_of_turn>",
                                                  "<end_of_utterance>",
                                                  "<turn|>",
                                                  "<|tool_response>",
                                                  "<|END_OF_TURN_TOKEN|>",
                                                  "<|role_end|>",
                                                  "<\uff5cend\u2581of\u2581sentence\uff5c>"};

constexpr std::array<std::string_view, 6> as_control{"</s>", "<eos>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]"};

bool contains(const std::vector<token_id>& ids, token_id id) { return std::ranges::find(ids, id) != ids.end(); }

} // namespace

bool is_end_by_name(std::string_view token) { return std::ranges::find(always, token) != always.end(); }

bool is_end_by_name_of_control(std::string_view token) {
  return std::ranges::find(as_control, token) != as_control.end();
}

std::vector<token_id> without_message_ends(std::vector<token_id> ends, const token_lookup& find) {
  for (const auto& both : ends_of_many_messages) {
    const auto one = find(both[0]), other = find(both[1]);
    if (!one || !other)
      continue;
    ends.insert(ends.end(), {*one, *other});
    std::erase(ends, find(message_end).value_or(-1));
  }
  std::ranges::sort(ends);
  const auto same = std::ranges::unique(ends);
  ends.erase(same.begin(), same.end());
  return ends;
}

std::vector<token_id> answer_ends(std::vector<token_id> stated, const tokenizer& tokens, const chat_template* chat,
                                  std::vector<std::string>& remarks) {
  const token_lookup find = [&](std::string_view text) { return tokens.id_of(text); };
  if (const auto eos = tokens.eos())
    stated.push_back(*eos);
  auto ends = without_message_ends(std::move(stated), find);
  const auto behind = chat ? chat->behind_answer() : std::string();
  const auto ids = tokens.encode(behind, false);
  if (std::ranges::any_of(ids, [&](token_id id) { return contains(ends, id); }))
    return ends;
  const auto first = std::ranges::find_if(ids, [&](token_id id) { return tokens.is_special(id); });
  if (first == ids.end())
    return ends;
  auto more = ends;
  more.push_back(*first);
  more = without_message_ends(std::move(more), find);
  if (more != ends)
    remarks.push_back("answers also end at " + shown(tokens.token(*first)) +
                      ", which the chat template writes behind them");
  return more;
}

} // namespace troupe
