#include "api/ollama/ollama_models.hpp"
#include "api/server/answers/answers.hpp"
#include "api/server/answers/request_of.hpp"

namespace troupe {

reply list_ollama_models(const call& c) { return reply::json(ollama_tags(c.models.known())); }

reply list_ollama_running(const call& c) { return reply::json(ollama_running(c.models.known())); }

reply show_ollama_model(const call& c) {
  const request_of asked(c);
  return reply::json(ollama_show(asked.body, *asked.model));
}

reply pull_ollama_model(const call& c) {
  const request_of asked(c);
  const auto lines = ollama_pull(asked.body, *asked.model);
  if (!asked.body.boolean("stream").value_or(true))
    return reply::json(lines.back());
  std::string all;
  for (const auto& line : lines)
    all += line + '\n';
  return {200, all, "application/x-ndjson", {}};
}

reply tell_ollama_version(const call&) { return reply::json(ollama_version()); }

} // namespace troupe
