#include "tests/simulation/hash_model.hpp"

#include "tests/simulation/dice.hpp"

#include <string>

namespace troupe::simulation {

std::shared_ptr<const tokenizer> hash_tokenizer() {
  static const auto made = [] {
    const std::string characters = "{}\":,[] .-0123456789abcdefghijklmnopqrstuvwxyz?"; // one for each token from 1 on
    std::string json =
      R"({"added_tokens":[{"id":0,"content":"<end>","special":true,"single_word":false,"lstrip":false,)"
      R"("rstrip":false,"normalized":false}],"decoder":{"type":"Fuse"},"model":{"type":"BPE","vocab":{)";
    json += R"("<end>":0)";
    for (std::size_t i = 0; i < characters.size(); ++i)
      json += std::string(",\"") + (characters[i] == '"' ? "\\\"" : std::string(1, characters[i])) +
        "\":" + std::to_string(i + 1);
    return tokenizer::parse(json + R"(},"merges":[]}})", "simulation");
  }();
  return made;
}

void hash_logits(std::uint64_t row, token_id last, std::span<float> logits) {
  auto h = row;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (i % 4 == 0)
      h = mixed(row, i + 1);
    logits[i] = static_cast<float>((h >> (16 * (i % 4))) & 0xffff) / 16384.0f; // below 4
  }
  if (const auto how = mixed(row, 1000) % 64; how < 44)
    logits[static_cast<std::size_t>(likely_behind(last))] += 6;
  else if (how < 46)
    logits[end_token] += 8;
}

void hash_hidden(std::uint64_t row, std::span<float> hidden) {
  for (std::size_t i = 0; i < hidden.size(); ++i)
    hidden[i] = static_cast<float>(mixed(row, 2000 + i) & 0xffff) / 32768.0f - 1;
}

} // namespace troupe::simulation
