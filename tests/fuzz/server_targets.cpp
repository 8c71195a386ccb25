// What clients send: whole connections, WebSockets, and requests of each API. Served without sockets
// (tests/api/server/drive_connection.hpp); replies must be well-formed, and nothing is left of a connection at its end.
#include "tests/api/server/drive_connection.hpp"
#include "tests/fuzz/connection_seeds.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <algorithm>
#include <array>

namespace troupe::test {

namespace {

/// The statuses and error texts of the replies.
std::string kind_of_replies(const std::string& received) {
  std::string kind;
  for (const std::string_view mark : {"HTTP/1.1 ", "\"message\":\"", "\"type\":\"", "\"param\":\""})
    for (auto at = received.find(mark); at != received.npos && kind.size() < 400; at = received.find(mark, at + 1)) {
      const auto text = received.substr(at + mark.size(), 60);
      kind += text.substr(0, text.find_first_of("\"`\r\\"));
    }
  return kind;
}

std::string serve(const std::string& bytes) {
  const auto driven = drive_connection(bytes);
  if (!driven.fault.empty())
    broken(driven.fault);
  return kind_of_replies(driven.received);
}

std::string connection(std::string_view input) { return serve(connection_bytes(input)); }

constexpr std::string_view upgrade = "Upgrade: websocket";

texts http_seeds() {
  auto seeds = connection_seeds();
  std::erase_if(seeds, [](const std::string& seed) { return seed.find(upgrade) != seed.npos; });
  return seeds;
}

texts socket_seeds() {
  auto seeds = connection_seeds();
  std::erase_if(seeds, [](const std::string& seed) { return seed.find(upgrade) == seed.npos; });
  return seeds;
}

/// A path, a line break, a body.
std::string request(std::string_view input) {
  const auto path = input.substr(0, input.find('\n'));
  return serve(request_bytes(path, input.substr(std::min(input.size(), path.size() + 1))));
}

/// The requests among the connections' seeds whose paths begin with one of these.
template <const auto& Paths>
texts request_seeds() {
  texts seeds;
  for (const auto& script : connection_seeds())
    for (auto at = script.find("POST "); at != script.npos; at = script.find("POST ", at + 1)) {
      const auto path = script.substr(at + 5, script.find(' ', at + 5) - at - 5);
      const auto body = script.find('\x1f', at), end = std::min(script.find('\x1e', at), script.size());
      if (body < end && std::ranges::any_of(Paths, [&](std::string_view begin) { return path.starts_with(begin); }))
        seeds.push_back(path + '\n' + script.substr(body + 1, end - body - 1));
    }
  return seeds;
}

constexpr std::array<std::string_view, 5> openai{"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize",
                                                 "/infill"};
constexpr std::array<std::string_view, 1> responses{"/v1/responses"};
constexpr std::array<std::string_view, 1> anthropic{"/v1/messages"};
constexpr std::array<std::string_view, 1> ollama{"/api/"};
constexpr std::array<std::string_view, 4> others{"/v1/embeddings", "/v1/rerank", "/score", "/v1/watermark"};

} // namespace

std::vector<fuzz_target> server_targets() {
  return {{"openai", request, request_seeds<openai>, connection_words},
          {"responses", request, request_seeds<responses>, connection_words},
          {"anthropic", request, request_seeds<anthropic>, connection_words},
          {"ollama", request, request_seeds<ollama>, connection_words},
          {"embeddings", request, request_seeds<others>, connection_words},
          {"http", connection, http_seeds, connection_words},
          {"websocket", connection, socket_seeds, connection_words}};
}

} // namespace troupe::test
