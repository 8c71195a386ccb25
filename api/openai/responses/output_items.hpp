// The output items of a response (messages, reasoning, calls of functions) in the order in which they came, and the
// stream events that announce them. Plain data in, text out; used on the connection's strand.
#pragma once

#include "api/openai/responses/conversation.hpp"
#include "api/openai/responses/response_tools.hpp"
#include "api/service/served_model.hpp"
#include "runtime/chat/output/output_delta.hpp"
#include "runtime/engine/generation.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class json_object;

/// How items are told.
struct item_style {
  bool stream = false;                               // by events
  bool seals_reasoning = false;                      // it has `encrypted_content`, too
  std::shared_ptr<const tool_namespaces> namespaces; // that called functions are in; never null
};

class output_items {
public:
  output_items(std::shared_ptr<const served_model> model, item_style style)
    : model_(std::move(model)), style_(std::move(style)) {}

  /// Appends a piece, and returns its events. `logprobs`: of the tokens that brought it, if asked for.
  std::string add(const output_delta& delta, const std::vector<sampled_token>& logprobs);
  /// Ends the last item. `whole`: it was not cut off. An answer without items gets an empty message.
  std::string end(bool whole);
  /// Ends the last item if it is open, as the answer breaks off.
  std::string break_off() { return close(false); }

  /// The items that have ended, as a JSON list.
  std::string json() const;
  /// Adds them to a conversation.
  void add_to(conversation& chat) const;

  /// One event of the stream, of the given type; `members` follow its type and number.
  std::string event(std::string_view type, const json_object& members);

private:
  enum class kind : std::uint8_t { message, reasoning, call };
  struct item {
    kind what;
    std::string json;
    std::string text, call_id, name; // text: or arguments
  };

  std::string open(kind what, const output_delta& delta);
  std::string close(bool whole);
  std::string item_json(std::string_view status, bool empty) const;
  std::string part_json(bool empty) const;
  /// The name of the open call, as the client knows it.
  const std::string& called_name() const;
  /// The members that events of the open item begin with.
  json_object about_item(bool part) const;

  std::shared_ptr<const served_model> model_;
  item_style style_;
  std::vector<item> items_; // that have ended
  std::uint64_t events_ = 0;
  // The open item:
  bool open_ = false;
  kind kind_ = kind::message;
  std::string id_, text_, call_id_, name_;
  std::vector<sampled_token> logprobs_;
};

} // namespace troupe
