#include "api/cli/serve_options.hpp"
#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/policy_file.hpp"
#include "api/cli/served_list.hpp"
#include "api/cli/technique_options.hpp"
#include "api/cli/values.hpp"
#include "api/http/control_socket.hpp"
#include "api/http/key_ring.hpp"
#include "api/http/tls_identity.hpp"
#include "runtime/engine/loading/replica_roles.hpp"
#include "runtime/techniques/repertoire.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

namespace troupe::cli {

namespace {

template <class T>
using named = std::vector<std::pair<std::string, T>>;

const named<log_level> log_levels{{"debug", log_level::debug},
                                  {"info", log_level::info},
                                  {"warn", log_level::warn},
                                  {"error", log_level::error},
                                  {"off", log_level::off}};
const named<log_format> log_formats{{"text", log_format::text}, {"json", log_format::json}};

/// An option whose value is the name of one of `values`.
template <class T, class To>
void add_choice(CLI::App& command, const char* flag, const char* type, const char* initial, const char* help,
                const named<T>& values, To& to) {
  std::vector<std::string> names;
  for (const auto& [name, value] : values)
    names.push_back(name);
  command
    .add_option_function<std::string>(
      flag,
      [&values, &to](const std::string& given) {
        to = std::ranges::find(values, given, &std::pair<std::string, T>::first)->second;
      },
      help)
    ->check(one_of(std::move(names)))
    ->type_name(type)
    ->default_str(initial)
    ->group(output_group);
}

/// Sections for keys that nobody has, as misspelt ones, would protect nothing.
void check_policy_keys(const std::string& file, const server_options& server) {
  std::set<std::string> names;
  for (std::size_t i = 1; i <= server.api_keys.size(); ++i)
    names.insert("key-" + std::to_string(i));
  if (!server.key_file.empty())
    for (const auto& one : read_keys(server.key_file))
      names.insert(one.name);
  for (const auto& [name, rules] : server.policy.of_key)
    if (!names.contains(name)) {
      std::string known;
      for (const auto& one : names)
        known += (known.empty() ? "" : ", ") + one;
      throw failure(errc::bad_request,
                    file + ": [key." + name + "] names no key; " +
                      (names.empty() ? "this server has none" : "there are " + known));
    }
}

void add_server_options(CLI::App& command, serve_options& given) {
  auto& options = given.server;
  const auto option = [&](const char* flag, auto& value, const char* help, const char* type) {
    return command.add_option(flag, value, help)->type_name(type)->capture_default_str()->group(server_group);
  };
  option("--host", options.host,
         "Address to listen on; 0.0.0.0: all of this machine's; unix:PATH: a socket that programs of this machine "
         "reach by its path",
         "ADDRESS");
  option("--port", options.port, "Port to listen on; 0: any that is free, which is then printed", "INT")
    ->check(integer_between(0, 65535));
  command
    .add_option("--api-key", options.api_keys,
                "Answer only requests with this bearer token; may be repeated, or given in TROUPE_API_KEY. Other users "
                "of this machine can see it in the list of processes: prefer a file")
    ->take_all()
    ->allow_extra_args(false)
    ->type_name("KEY")
    ->group(server_group);
  const auto file = [&](const char* flag, std::string& value, const char* help) {
    command.add_option(flag, value, help)->type_name("FILE")->group(server_group);
  };
  file("--api-key-file", given.key_file, "Read an API key from this file");
  file("--api-keys", given.keys_file,
       "Read API keys from this file, a line `name=key` for each; names appear in the log and in metrics. The file is "
       "read again when it changes");
  file("--metrics-key-file", given.metrics_key_file,
       "Read from this file a key that opens /metrics and nothing else; /metrics needs a key then. It can also be "
       "given in TROUPE_METRICS_KEY");
  file("--admin-key-file", given.admin_key_file,
       "Read from this file a key with which clients may load and unload models (POST /v1/models/load, /unload), and "
       "nothing else. It can also be given in TROUPE_ADMIN_KEY");
  file("--tls-cert", given.tls_certificate,
       "Speak TLS (https, wss) by the certificate in this PEM file, followed by those that lead to a root; with "
       "--tls-key. "
       "SIGHUP reads both again, for new connections");
  file("--tls-key", given.tls_key, "The key of --tls-cert: a PEM file without a password");
  file("--policy", given.policy_file,
       "Read from this TOML file what clients cannot lift: texts that no answer contains, biases, the highest "
       "temperature, the longest answer; for all, or in [key.NAME] for one name of --api-keys");
  command
    .add_option_function<std::string>(
      "--unknown-fields",
      [&options](const std::string& how) {
        options.unknown = how == "reject" ? unknown_fields::reject
          : how == "ignore"               ? unknown_fields::ignore
                                          : unknown_fields::warn;
      },
      "Fields of requests that nothing reads, as misspelt ones: tell them in the log and in the header "
      "X-Troupe-Warning, refuse the request, or say nothing")
    ->check(one_of({"warn", "reject", "ignore"}))
    ->default_str("warn")
    ->group(server_group);
  command
    .add_flag(
      "--isolate-keys", options.isolate_keys,
      "No API key, or address without keys, shares cached prefixes with another one: nobody learns from times what "
      "others asked")
    ->group(server_group);
  command
    .add_flag("--allow-anonymous", given.allow_anonymous,
              "Serve everybody without a key, also other machines if --host lets them reach this one")
    ->group(server_group);
  command
    .add_flag_callback(
      "--no-page", [&options] { options.page = false; }, "Serve no web page at /, only the endpoints")
    ->group(server_group);
  command
    .add_flag("--replace", given.replace,
              "Take the place of the server that runs at --control-socket: load the model, which needs memory beside "
              "the other's, then take over its socket, its idle connections and its running requests. Nothing is lost "
              "or refused; if the load fails, the other serves on")
    ->configurable(false)
    ->group(server_group);
  command
    .add_flag("--background", given.background,
              "With --replace: return once the new server has taken over, which goes on in the background; for a "
              "service manager's reload command")
    ->configurable(false)
    ->group(server_group);
  command
    .add_option("--control-socket", given.control_socket,
                "Path by which another process of this user takes this server's place; its folder must be this "
                "user's. By default below RUNTIME_DIRECTORY, XDG_RUNTIME_DIR or /tmp, by --host and --port, and "
                "none with --port 0; none: no path")
    ->type_name("PATH")
    ->group(server_group);
  command
    .add_option_function<std::int64_t>(
      "--replace-grace", [&given](std::int64_t s) { given.replace_grace = std::chrono::seconds(s); },
      "Time for running requests to finish when another server has taken this one's place and they cannot go on there")
    ->check(integer_between(0, 24 * 3600))
    ->type_name("SECONDS")
    ->default_str(std::to_string(given.replace_grace.count() / 1000))
    ->group(server_group);
  command
    .add_flag("--no-sandbox", given.no_sandbox,
              "Do not confine the server. By default it opens only the models, files and caches that its settings "
              "name, connects to no TCP port, and starts no program, once it has begun")
    ->group(server_group);
  command
    .add_option(
      "--record", given.record_folder,
      "Record in this folder what is asked and answered, for `troupe replay`: bodies of requests, tokens and their "
      "log-probabilities, never keys")
    ->type_name("DIR")
    ->group(server_group);
  command
    .add_option_function<std::string>(
      "--record-prompts", [&given](const std::string& how) { given.record_prompts = how == "full"; },
      "Of requests and answers, record all, or only how long they are and when they came")
    ->check(one_of({"full", "none"}))
    ->default_str("full")
    ->group(server_group);
  command
    .add_flag(
      "--fault-injection", options.fault_injection,
      "Let clients make parts of the server fail, by POST /debug/faults: for tests, on an address of this machine "
      "alone, and not in a configuration file")
    ->configurable(false)
    ->group(server_group);
  command
    .add_option("--cors-origin", options.cors_origins,
                "Allow requests from web pages of this origin; may be given several times; *: all pages")
    ->take_all()
    ->allow_extra_args(false)
    ->type_name("ORIGIN")
    ->group(server_group);
  command
    .add_option("--allowed-hosts", options.allowed_hosts,
                "Also answer requests to this host name; may be repeated, or separated by commas; *: all. A server "
                "without an API key otherwise answers only to this machine's names, to block DNS rebinding")
    ->take_all()
    ->allow_extra_args(false)
    ->delimiter(',')
    ->type_name("HOST")
    ->group(server_group);
  const auto size = [&](const char* flag, std::size_t& value, const char* help, const char* shown) {
    command.add_option(flag, value, help)
      ->transform(size_value())
      ->type_name("SIZE")
      ->default_str(shown)
      ->group(server_group);
  };
  size("--max-body", options.max_body_bytes, "Largest body of a request", "16MiB");
  size("--max-body-memory", options.max_body_memory,
       "Memory for the bodies of all current requests; further requests are refused", "256MiB");
  size("--max-answer-memory", options.max_answer_memory,
       "Memory for all answers under way; when it is reached, the slowest readers lose their connections", "256MiB");
  size("--max-resume-memory", options.max_resume_memory,
       "Memory for what lost clients may have missed, with --resume-window; one client has half of it", "64MiB");
  size("--max-response-memory", options.max_response_memory,
       "Memory for the responses of /v1/responses that clients may ask for again; 0: none is stored", "64MiB");
  size("--record-size", given.record_bytes, "Files of --record, all together; the oldest are removed", "1GiB");
  size("--max-frame", options.max_frame_bytes, "Largest message on a WebSocket", "1MiB");
  option("--max-connections", options.max_connections, "Concurrent connections; further ones are refused", "INT")
    ->check(integer_between(1, 1 << 20));
  option("--max-requests-per-socket", options.max_requests_per_socket, "Concurrent sequences on one WebSocket", "INT")
    ->check(integer_between(1, 1 << 20));
  const auto seconds = [&](const char* flag, std::chrono::milliseconds& value, const char* help) {
    command
      .add_option_function<std::int64_t>(
        flag, [&value](std::int64_t s) { value = std::chrono::seconds(s); }, help)
      ->check(integer_between(0, 24 * 3600))
      ->type_name("SECONDS")
      ->default_str(std::to_string(value.count() / 1000))
      ->group(server_group);
  };
  seconds("--resume-window", options.resume_window,
          "How long a stream goes on when its client is lost, which may come back for what it has missed (GET "
          "/v1/requests/ID/events with Last-Event-ID, or a WebSocket's `resume`); 0: it is cancelled at once");
  seconds("--header-timeout", options.header_timeout, "Time for a request's headers to arrive");
  seconds("--idle-timeout", options.idle_timeout, "Time until an idle connection is closed");
  seconds("--stop-grace", options.stop_grace,
          "Time for running requests to finish when the server stops; a second signal cuts it short");
}

/// Adds the flags for several models: where they are, and when they are loaded.
void add_catalogue_options(CLI::App& command, serve_options& options) {
  command
    .add_option("--models-dir", options.models_folder,
                "Also serve all models below this folder, each by its name there")
    ->type_name("DIR")
    ->group(model_group);
  command
    .add_flag(
      "--load-on-demand", options.rules.on_demand,
      "Load a model when the first request names it, and unload those used longest ago if memory is short; else "
      "all are loaded at the start")
    ->group(model_group);
  command
    .add_option_function<std::int64_t>(
      "--idle-unload", [&options](std::int64_t seconds) { options.rules.idle_unload = std::chrono::seconds(seconds); },
      "With --load-on-demand: unload a model that nobody has used for so long; by default they stay")
    ->check(integer_between(1, 365 * 24 * 3600))
    ->type_name("SECONDS")
    ->group(model_group);
}

} // namespace

bool has_keys(const server_options& options) { return !options.api_keys.empty() || !options.key_file.empty(); }

log_level level_of(const serve_options& options) {
  return options.level.value_or(options.quiet ? log_level::off : log_level::info);
}

std::filesystem::path control_path(const serve_options& options) {
  if (options.control_socket == "none")
    return {};
  if (!options.control_socket.empty())
    return options.control_socket;
  return options.server.port == 0 ? std::filesystem::path()
                                  : default_control_path(options.server.host, options.server.port);
}

/// What the environment and the files that flags name say.
void take_files(serve_options& options) {
  if (const char* key = std::getenv("TROUPE_API_KEY"); key && *key)
    options.server.api_keys.emplace_back(key);
  if (!options.key_file.empty())
    options.server.api_keys.push_back(read_key(options.key_file));
  if (!options.keys_file.empty())
    read_keys(options.keys_file); // what is wrong is told before the model is loaded
  options.server.key_file = options.keys_file;
  if (!options.metrics_key_file.empty())
    options.server.metrics_key = read_key(options.metrics_key_file);
  else if (const char* key = std::getenv("TROUPE_METRICS_KEY"); key && *key)
    options.server.metrics_key = key;
  if (!options.admin_key_file.empty())
    options.server.admin_key = read_key(options.admin_key_file);
  else if (const char* key = std::getenv("TROUPE_ADMIN_KEY"); key && *key)
    options.server.admin_key = key;
  if (options.tls_certificate.empty() != options.tls_key.empty())
    throw usage_failure("--tls-cert and --tls-key go together");
  options.server.tls_certificate = options.tls_certificate;
  options.server.tls_key = options.tls_key;
  if (!options.tls_certificate.empty())
    const tls_identity checked(options.tls_certificate,
                               options.tls_key); // what is wrong is told before the model is loaded
  if (!options.policy_file.empty()) {
    options.server.policy = read_policy(options.policy_file);
    check_policy_keys(options.policy_file, options.server);
  }
  for (const auto* each : repertoire())
    if (each->serve)
      options.server.techniques.set(*each, each->serve(options.techniques));
}

void bound_keys(serve_options& options, const std::vector<catalogue_model>& engines) {
  // With several keys, one may keep all sequences busy but not fill the queue.
  std::size_t room = 0, running_and_half_the_queue = 0;
  for (const auto& each : engines) {
    const auto running = replica_count(each.options) * each.options.max_sequences;
    room += static_cast<std::size_t>(running + each.options.max_queue);
    running_and_half_the_queue += static_cast<std::size_t>(running + (each.options.max_queue + 1) / 2);
  }
  options.server.engine_room = room;
  options.server.max_requests_per_key = options.per_key.value_or(
    options.server.api_keys.size() > 1 || !options.keys_file.empty() ? running_and_half_the_queue : 0);
}

void add_serve_options(CLI::App& app, serve_options& options) {
  add_server_options(app, options);
  add_model_settings(app, options.engine, &options.models);
  add_catalogue_options(app, options);
  app.add_flag("--quiet", options.quiet, "Print the URL and nothing else")->group(output_group);
  app
    .add_option(
      "--max-requests-per-key", options.per_key,
      "Sequences that one API key may have running or waiting; 0: no bound of its own. By default, where there "
      "are several keys, --max-sequences and half of --max-queue")
    ->check(integer_between(0, 1 << 20))
    ->type_name("INT")
    ->group(server_group);
  add_technique_options(app, options.techniques, technique_option::server, server_group);
  add_choice(app, "--log-level", "LEVEL", "info",
             "What to log on stderr: debug, info (a line for each request), warn, error or off", log_levels,
             options.level);
  add_choice(app, "--log-format", "FORMAT", "text", "text, or json: an object on each line, and nothing else on stderr",
             log_formats, options.format);
  add_common_options(app);
}

} // namespace troupe::cli
