#include "api/cli/commands/serve.hpp"

#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/policy_file.hpp"
#include "api/cli/technique_options.hpp"
#include "api/cli/terminal/console.hpp"
#include "api/cli/terminal/progress.hpp"
#include "api/cli/terminal/standard_streams.hpp"
#include "api/cli/values.hpp"
#include "api/http/inherited_socket.hpp"
#include "api/http/key_ring.hpp"
#include "api/http/service_manager.hpp"
#include "api/server/endpoint.hpp"
#include "api/serving/server.hpp"
#include "runtime/chat/output/find_chat_format.hpp"
#include "runtime/engine/loading/replica_roles.hpp"
#include "runtime/model/default_sampling.hpp"
#include "runtime/support/text/byte_size.hpp"
#include "runtime/techniques/repertoire.hpp"

#include <CLI/CLI.hpp>
#include <boost/asio/ip/address.hpp>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <sys/resource.h>

namespace troupe::cli {

namespace {

struct serve_options {
  server_options server;
  engine_options engine;
  bool allow_anonymous = false;
  std::optional<log_level> level; // unset: info, or off if quiet
  log_format format = log_format::text;
  std::optional<std::size_t> per_key;
  bool quiet = false;
  std::string key_file, keys_file, metrics_key_file, policy_file;
  flag_values techniques; // of the server

  /// Whether stderr gets more than lines: a bar on a terminal, and an example request.
  bool is_verbose() const { return format == log_format::text && server.log->wants(log_level::info); }
};

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

bool is_every_address(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

std::string url_of(const std::string& host, std::uint16_t port) {
  if (host.starts_with("unix:"))
    return host;
  return "http://" + (host.find(':') != host.npos ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

/// A request to paste into a shell.
std::string example(const std::string& url, const model_info& model, bool with_key) {
  const auto key = with_key ? " -H \"Authorization: Bearer $TROUPE_API_KEY\"" : "";
  const auto request = [&](const std::string& path, const std::string& body) {
    const auto to = url.starts_with("unix:") ? "--unix-socket " + url.substr(5) + " http://localhost" : url;
    return "curl -N " + to + path + key + " -H 'Content-Type: application/json' -d '" + body + "'";
  };
  if (model.chat)
    return request("/v1/chat/completions",
                   R"({"messages":[{"role":"user","content":"Tell me a story about a fox"}],)"
                   R"("max_tokens":300,"stream":true})");
  if (model.tokenizer)
    return request("/v1/completions", R"({"prompt":"Once upon a time","max_tokens":100,"stream":true})");
  return request("/v1/completions", R"({"prompt":[1,2,3],"max_tokens":100,"return_token_ids":true})");
}

/// What requests that say nothing are sampled with, and whence that is.
std::string sampling_of(const model_info& model) {
  const auto& named = model.defaults;
  auto text = told_sampling(default_sampling(named, sampling_convention::local)) + " (" + source_of_sampling(named) +
    ')';
  if (named.sampling_source.empty())
    text += "; below /v1 " + told_sampling(default_sampling(named, sampling_convention::openai)) + ", as OpenAI's";
  return text;
}

/// What the connections and the model's files may need.
std::uint64_t most_descriptors(const server_options& options) { return options.max_connections + 64; }

/// Raises the soft limit of open files to the hard one. Returns the limit in force.
std::uint64_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0)
    return 0;
  const auto before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : before;
}

struct stop_at_end {
  server& listening;
  ~stop_at_end() { listening.stop(); }
};

/// What the log says of a model that is ready.
log_fields facts_of(const model_info& model, const std::string& url) {
  log_fields facts{{"url", url},
                   {"model", model.id},
                   {"dtype", model.dtype},
                   {"device", model.device},
                   {"weights", to_size(model.weight_bytes)},
                   {"kv_cache", to_size(model.kv_cache_bytes)},
                   {"context", static_cast<std::uint64_t>(model.max_context)}};
  if (model.max_context < model.own_context)
    facts.push_back({"models_context", static_cast<std::uint64_t>(model.own_context)});
  return facts;
}

/// Calls `run`. What it throws goes to the log, in the log's format, unless that is off or the command line is wrong.
int logged(server_log& log, log_format format, const std::function<int()>& run) {
  try {
    return run();
  } catch (const failure& e) {
    const bool usage = dynamic_cast<const usage_failure*>(&e);
    if (!log.wants(log_level::error) || (usage && format == log_format::text))
      throw;
    log.say(log_level::error, "failed", e.what());
    return usage ? usage_error : failed;
  }
}

/// Logs the lines of a load, its failure, restarts and news, and shows a bar on a terminal.
progress_sink follow(const std::shared_ptr<server_log>& log, bool verbose, console& terminal,
                     const service_manager& manager) {
  using stage = load_status::stage;
  const auto bar = std::make_shared<progress>(!verbose, false, [log](std::string_view text) { log->print(text); });
  const auto was_ready = std::make_shared<bool>(false);
  const auto last = std::make_shared<std::string>();
  return [log, bar, was_ready, last, &terminal, &manager](const load_status& status) {
    if (!status.news.empty())
      return log->say(status.level, status.level > log_level::info ? "trouble" : "measured", status.news);
    if (status.now == stage::ready && std::exchange(*was_ready, true)) {
      if (!status.line.empty())
        log->write(log_level::warn, "restarted", {{"why", status.line}});
      else if (!status.degraded.empty())
        log->say(log_level::warn, "trouble", status.degraded);
      return;
    }
    bar->show(status);
    if (status.now == stage::loading && !status.line.empty() && std::exchange(*last, status.line) != status.line)
      log->say(status.level, "loading", status.line);
    if (status.now == stage::loading && !*was_ready)
      manager.loading(status.line.empty() ? "loading" : status.line);
    if (status.now == stage::failed && status.why) {
      log->say(log_level::error, "failed", status.why->message);
      terminal.post(*status.why);
    }
  };
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

bool has_keys(const server_options& options) { return !options.api_keys.empty() || !options.key_file.empty(); }

/// Faults on purpose are for tests, on this machine alone.
void check_fault_injection(const serve_options& options, const std::string& host) {
  if (options.server.fault_injection && !is_loopback(host))
    throw usage_failure("--fault-injection lets clients make parts of the server fail, so --host must be an address of "
                        "this machine alone, as 127.0.0.1, which " +
                        host + " is not");
}

/// Whether everybody who reaches the server from other machines is let in. Throws usage_failure if that is not wanted.
bool check_access(const serve_options& options, const std::string& host) {
  const bool open_to_others = !has_keys(options.server) && !is_loopback(host);
  if (open_to_others && !options.allow_anonymous)
    throw usage_failure("other machines could use this server, as --host is " + host +
                        " and there is no API key: give one with --api-key-file (or in TROUPE_API_KEY), or let "
                        "everybody in with --allow-anonymous");
  return open_to_others;
}

void take_files(serve_options& options);
log_level level_of(const serve_options& options) {
  return options.level.value_or(options.quiet ? log_level::off : log_level::info);
}

/// Flags whose values, or files, are put in force by `reload`.
constexpr std::array<std::string_view, 14> live_flags{"api-key",          "api-key-file",  "api-keys",
                                                      "metrics-key-file", "policy",        "allow-anonymous",
                                                      "cors-origin",      "allowed-hosts", "max-requests-per-key",
                                                      "header-timeout",   "idle-timeout",  "stop-grace",
                                                      "log-level",        "config"};

/// The command line and all files that it names, read again: what can change does, the rest is told.
void reload(server& listening, const engine& engine, const CLI::App& given, const reader& again,
            const std::string& host, server_log& log) {
  try {
    const auto now = again();
    auto& next = *static_cast<serve_options*>(now.given.get());
    take_files(next);
    check_access(next, host);
    if (const auto model = engine.model())
      check_policy(next.server.policy, served_model(*model));
    listening.reload(next.server);
    log.set_level(level_of(next));
    log.write(log_level::info, "reloaded");
    for (const auto* before : given.get_options()) {
      const auto name = before->get_lnames().empty() ? std::string() : before->get_lnames().front();
      const auto* after = now.options->get_option_no_throw("--" + name);
      if (!name.empty() && after && before->results() != after->results() &&
          std::ranges::find(live_flags, name) == live_flags.end())
        log.say(log_level::warn, "reload", "--" + name + " has another value now, which takes a restart");
    }
  } catch (const failure& e) {
    log.say(log_level::error, "reload", "nothing is changed: " + std::string(e.what()));
  }
}

/// Tells the manager that the engine's actors answer, as often as it wants to hear it: one that hangs is not alive.
std::jthread watched(const service_manager& manager, const engine& engine) {
  if (!manager.watchdog())
    return {};
  return std::jthread([&manager, &engine](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    for (std::unique_lock lock(mutex); !stop.stop_requested();) {
      try {
        engine.stats();
        manager.alive();
      } catch (const failure&) { // it is stopping, or starts anew
      }
      wake.wait_for(lock, stop, *manager.watchdog(), [] { return false; });
    }
  });
}

int serve(serve_options options, const CLI::App& given, const reader& again) {
  require_model(options.engine.model);
  std::signal(SIGPIPE, SIG_IGN); // who reads the log may go away: that ends nothing
  if (const auto inherited = checked_usage(take_inherited_socket)) {
    options.server.host = inherited->host;
    options.server.socket = inherited->descriptor;
  }
  const auto& host = options.server.host;
  const bool open_to_others = check_access(options, host);
  check_fault_injection(options, host);
  const auto log = options.server.log;
  const service_manager manager;
  console terminal;
  terminal.catch_interrupts();
  terminal.catch_hangups({}); // all is read already
  if (const auto limit = raise_descriptor_limit(); limit < most_descriptors(options.server))
    log->write(log_level::warn, "few file descriptors",
               {{"limit", limit}, {"wanted", most_descriptors(options.server)}});
  log->write(log_level::info, "loading", {{"model", options.engine.model}});
  const auto engine = engine::start(with_bundled_second(options.engine),
                                    follow(log, options.is_verbose(), terminal, manager));
  catalogue models(engine);
  server listening(models, options.server);
  const auto url = url_of(host, listening.port());
  print("Listening on " + url + (is_every_address(host) ? " (all addresses of this machine)\n" : "\n"));
  const auto local_url = url_of(host == "0.0.0.0" ? "127.0.0.1" : host == "::" ? "::1" : host, listening.port());
  if (options.server.page && options.is_verbose() && listening.port() != 0)
    log->say(log_level::info, "page", "open " + local_url + " in a browser to chat and to watch the engine");
  if (options.server.fault_injection)
    log->say(log_level::warn, "faults",
             "clients may make parts of this server fail (--fault-injection): it is for tests");
  if (open_to_others)
    log->say(log_level::warn, "anonymous",
             "without a key, everyone who can reach this address can use the server (--allow-anonymous)");

  std::jthread serving([&] {
    listening.run_until_stopped();
    terminal.post(done_event{});
  });
  const stop_at_end stopping{listening}; // also if the next thread cannot be started
  std::jthread loading([&] {
    try {
      const auto model = engine.wait_until_ready();
      try {
        check_policy(options.server.policy, served_model(*model));
      } catch (const failure& f) {
        log->say(log_level::error, "failed", f.what_failed().message);
        return terminal.post(f.what_failed());
      }
      if (const auto warning = schedule_warning(*model); !warning.empty())
        log->say(log_level::warn, "schedule", warning);
      log->write(log_level::info, "ready", facts_of(*model, url));
      manager.ready();
      if (model->generates)
        log->write(log_level::info, "sampling", {{"by_default", sampling_of(*model)}});
      if (options.is_verbose())
        log->say(log_level::info, "example", "try: " + example(local_url, *model, has_keys(options.server)));
    } catch (const failure&) { // already posted, or the server is stopping
    }
  });
  terminal.catch_hangups([&] {
    manager.reloading();
    reload(listening, engine, given, again, host, *log);
    manager.ready();
  });
  const auto watchdog = watched(manager, engine);
  // Only two things end this wait: the engine's failure, or an interrupt.
  const auto broken = terminal.next_event();
  if (!broken)
    log->write(log_level::info, "stopping",
               {{"signal", std::string(terminal.last_signal_name())},
                {"running", std::uint64_t(listening.running_requests())},
                {"grace_s", static_cast<std::uint64_t>(options.server.stop_grace.count() / 1000)}});
  terminal.catch_hangups({}); // nothing changes any more
  manager.stopping();
  listening.stop();
  for (bool ended = false; !ended;) {
    const auto next = terminal.next_event();
    ended = next && std::holds_alternative<done_event>(*next);
    if (!next) { // a second interrupt; a third ends the program at once
      terminal.let_interrupts_end_the_program();
      log->write(log_level::info, "stopping at once",
                 {{"signal", std::string(terminal.last_signal_name())},
                  {"running", std::uint64_t(listening.running_requests())}});
      listening.stop_now();
    }
  }
  terminal.let_interrupts_end_the_program();
  serving.join();
  engine.stop();
  loading.join();
  if (broken && log->wants(log_level::error))
    return failed; // the log has it
  if (broken)
    throw failure(std::get<error>(*broken).code, std::get<error>(*broken).message);
  log->write(log_level::info, "stopped");
  return 0;
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
  if (!options.policy_file.empty()) {
    options.server.policy = read_policy(options.policy_file);
    check_policy_keys(options.policy_file, options.server);
  }
  // With several keys, one may keep all sequences busy but not fill the queue.
  const auto& engine = options.engine;
  options.server.engine_room = static_cast<std::size_t>(replica_count(engine) * engine.max_sequences +
                                                        engine.max_queue);
  const auto running_and_half_the_queue = static_cast<std::size_t>(replica_count(engine) * engine.max_sequences +
                                                                   (engine.max_queue + 1) / 2);
  options.server.max_requests_per_key = options.per_key.value_or(
    options.server.api_keys.size() > 1 || !options.keys_file.empty() ? running_and_half_the_queue : 0);
  for (const auto* each : repertoire())
    if (each->serve)
      options.server.techniques.set(*each, each->serve(options.techniques));
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
    .add_flag("--allow-anonymous", given.allow_anonymous,
              "Serve everybody without a key, also other machines if --host lets them reach this one")
    ->group(server_group);
  command
    .add_flag_callback(
      "--no-page", [&options] { options.page = false; }, "Serve no web page at /, only the endpoints")
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
  size("--max-response-memory", options.max_response_memory,
       "Memory for the responses of /v1/responses that clients may ask for again; 0: none is stored", "64MiB");
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
  seconds("--header-timeout", options.header_timeout, "Time for a request's headers to arrive");
  seconds("--idle-timeout", options.idle_timeout, "Time until an idle connection is closed");
  seconds("--stop-grace", options.stop_grace,
          "Time for running requests to finish when the server stops; a second signal cuts it short");
}

} // namespace

bool is_loopback(const std::string& host) {
  if (host.starts_with("unix:")) // whoever the path lets in
    return true;
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(host, error);
  return error ? host == "localhost" : address.is_loopback();
}

std::string schedule_warning(const model_info& model) {
  if (model.schedule_invariant)
    return {};
  return "On this device results depend on what else runs; --deterministic makes them independent of it";
}

command add_serve(CLI::App& troupe, reader again) {
  const auto options = std::make_shared<serve_options>();
  auto* app = troupe.add_subcommand("serve", "Serve a model over HTTP (OpenAI's API) and WebSocket");
  add_server_options(*app, *options);
  add_engine_options(*app, options->engine);
  add_chat_template_option(*app, options->engine);
  add_technique_options(*app, options->engine.techniques, technique_option::served, model_group);
  app->add_flag("--quiet", options->quiet, "Print the URL and nothing else")->group(output_group);
  const auto format = [&](const char* flag, std::string& value, std::vector<std::string> names, const char* help) {
    app->add_option(flag, value, help)
      ->check(one_of(std::move(names)))
      ->type_name("NAME")
      ->capture_default_str()
      ->group(model_group);
  };
  format("--tool-parser", options->engine.formats.calls, call_format_names(),
         "How the model writes calls of tools; auto: as its chat template does; none: they are left in the text");
  format("--reasoning-parser", options->engine.formats.reasoning, reasoning_format_names(),
         "How the model marks its reasoning; auto: as its chat template does; none: it is left in the text");
  app
    ->add_option(
      "--max-requests-per-key", options->per_key,
      "Sequences that one API key may have running or waiting; 0: no bound of its own. By default, where there "
      "are several keys, --max-sequences and half of --max-queue")
    ->check(integer_between(0, 1 << 20))
    ->type_name("INT")
    ->group(server_group);
  add_technique_options(*app, options->techniques, technique_option::server, server_group);
  add_choice(*app, "--log-level", "LEVEL", "info",
             "What to log on stderr: debug, info (a line for each request), warn, error or off", log_levels,
             options->level);
  add_choice(*app, "--log-format", "FORMAT", "text",
             "text, or json: an object on each line, and nothing else on stderr", log_formats, options->format);
  add_common_options(*app);
  app->footer("Endpoints:\n" + list_endpoints(100) +
              "\nThe server listens at once and answers /health with 503 until the model is loaded. Ctrl-C or SIGTERM "
              "lets running requests finish, a second one ends them with an error; the exit status is 0. SIGHUP reads "
              "the configuration, keys and the policy again.\n"
              "Examples:\n"
              "  troupe serve\n"
              "  troupe serve --model ~/models/Qwen3-0.6B --port 9000 --kv-cache 4GiB\n"
              "  TROUPE_API_KEY=secret troupe serve --host 0.0.0.0 --config " +
              example_configuration());
  return {app,
          [app, options, again = std::move(again)] {
            options->server.log = server_log::on_stderr(level_of(*options), options->format);
            return logged(*options->server.log, options->format, [&] {
              take_files(*options);
              return serve(*options, *app, again);
            });
          },
          options};
}

} // namespace troupe::cli
