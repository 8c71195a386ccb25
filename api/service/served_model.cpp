#include "api/service/served_model.hpp"

#include "api/service/chat_input.hpp"
#include "runtime/chat/chat_template.hpp"

namespace troupe {

served_model::served_model(const model_info& facts) : model_info(facts) {
  if (const auto tokens = tokenizer) {
    most_bytes_per_token = tokens->most_bytes_per_token();
    const auto written = [&](std::optional<token_id> id) {
      return id ? std::optional<std::string>(tokens->token(*id)) : std::nullopt;
    };
    bos_token = written(tokens->bos());
    eos_token = written(tokens->eos());
    encode = [tokens](std::string_view text, bool special) { return tokens->encode(text, special); };
    encode_cut = [tokens](std::string_view text, std::size_t most) { return tokens->encode_cut(text, most); };
    encode_plain = [tokens, marks = infill ? infill->all() : std::vector<token_id>()](std::string_view text) {
      return tokens->encode_plain(text, marks);
    };
    specials_in = [tokens](std::string_view text) { return tokens->specials_in(text); };
    encode_around = [tokens](std::string_view text, bool special, std::span<const std::size_t> plain_at) {
      return tokens->encode_around(text, special, plain_at);
    };
    encode_pair = [tokens](std::string_view first, std::string_view second, std::size_t most_second) {
      return tokens->encode_pair(first, second, most_second);
    };
    decode = [tokens](std::span<const token_id> ids, bool skip) { return tokens->decode(ids, skip); };
    token_bytes = [tokens](token_id id) { return tokens->token_bytes(id); };
  }
  if (const auto its = chat)
    render = [its](const chat_input& input) {
      return its->render({.messages = input.messages,
                          .tools = input.tools,
                          .add_generation_prompt = input.add_generation_prompt,
                          .extra = input.variables,
                          .stop = input.stop});
    };
}

} // namespace troupe
