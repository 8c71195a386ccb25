// The functions of endpoints that make no generations. Each is named in its row of the table (../endpoints.cpp), which
// says on which thread it runs. They throw failure, and failure(cancelled) soon after a stop request.
#pragma once

#include "api/server/endpoint.hpp"

namespace troupe {

// models.cpp
reply list_models(const call& c);
reply tell_model(const call& c);
reply load_model(const call& c);
reply unload_model(const call& c);
reply load_variant(const call& c);
reply unload_variant(const call& c);

// tokens.cpp
reply tokenize(const call& c);
reply detokenize(const call& c);
reply tell_tokenizer(const call& c);
reply detect_mark(const call& c);

// stored_responses.cpp
reply count_response(const call& c);
reply list_response_input(const call& c);
reply refuse_cancellation(const call& c);
reply tell_response(const call& c);
reply delete_response(const call& c);

// requests.cpp
reply tell_request(const call& c);
reply cancel_request(const call& c);
reply control_request(const call& c);

// messages.cpp
reply count_message_tokens(const call& c);

// probes.cpp
reply tell_health(const call& c);
reply tell_metrics(const call& c);

// ollama.cpp
reply list_ollama_models(const call& c);
reply list_ollama_running(const call& c);
reply show_ollama_model(const call& c);
reply pull_ollama_model(const call& c);
reply tell_ollama_version(const call& c);

// debug.cpp
reply tell_figures(const call& c);

// faults.cpp
reply tell_faults(const call& c);
reply set_faults(const call& c);

// page.cpp
reply greet(const call& c);
reply serve_page_file(const call& c);

} // namespace troupe
