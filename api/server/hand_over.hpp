// A server's place is taken by another process of this machine, which gets its idle connections and the requests that can
// go on there: with the bytes of their bodies, what they have drawn by chance and the tokens that they have, from which
// the other makes the same answer and goes on behind what was written. Everything else is served to its end here.
#pragma once

#include "api/http/control_socket.hpp"
#include "api/openai/request_draws.hpp"
#include "api/server/figures/request_record.hpp"
#include "api/service/service.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

struct generation_job;

/// A request on its way to another process.
struct moving_request {
  std::string id, route; // "POST /v1/completions"
  request_record::origin from;
  std::string body;
  request_draws draws;
  std::shared_ptr<const std::vector<begun_sequence>> tokens; // null: it has not begun
  // How its answer is written:
  unsigned version = 11; // of HTTP
  bool keep_alive = true, head_sent = false;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string read_ahead = {}; // of the requests behind it
  std::int64_t spent_ms = 0;
};

/// The process that takes this one's place.
struct successor {
  std::shared_ptr<control_peer> line; // never null
  /// Of the models that it has: names and aliases, empty for what names none, and model_info::identity.
  std::map<std::string, std::string> models;
  bool same_program = true; // whose answers have the same bits
  /// Whether it has the model and means the same one by the name that a request gave, which may be empty or unknown.
  bool has(const served_model& model, std::string_view named) const;
};

/// What this server says to the one whose place it takes: a JSON object.
std::string describe_models(const service& engine);
/// The successor that `description` describes; without models if it is another build of this program, where no request
/// goes on. Throws failure.
successor successor_of(std::shared_ptr<control_peer> line, std::string_view description);

/// Whether a request can go on in another process: of one prompt, without log-probabilities, groups, or techniques other than
/// constraints, nor a response that is continued, which only this process has.
bool is_movable(const generation_job& job, std::string_view body);

std::string to_message(const moving_request& one);
/// An idle connection's.
std::string connection_message();
/// Nothing for an idle connection's. Throws failure.
std::unique_ptr<moving_request> moving_request_in(std::string_view message);

} // namespace troupe
