#include "runtime/tokenizer/formats/word_patterns.hpp"

#include "runtime/support/json/json_text.hpp"

namespace troupe::tokenization::words {

namespace {

std::string splits(const steps& expressions) {
  std::string list;
  for (const auto expression : expressions)
    list += std::string(list.empty() ? "" : ",") + R"({"type":"Split","pattern":{"Regex":)" + json_text(expression) +
      R"(},"behavior":"Isolated","invert":false})";
  return list;
}

} // namespace

std::string pre_tokenizer_json(const steps& expressions) {
  return R"({"type":"Sequence","pretokenizers":[)" + splits(expressions) +
    R"(,{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})";
}

std::string split_json(const steps& expressions) {
  return R"({"type":"Sequence","pretokenizers":[)" + splits(expressions) + "]}";
}

} // namespace troupe::tokenization::words
