#include "api/cli/commands/serve.hpp"

#include "api/catalogue/server.hpp"
#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/replacement.hpp"
#include "api/cli/serve_options.hpp"
#include "api/cli/serve_reload.hpp"
#include "api/cli/serve_sandbox.hpp"
#include "api/cli/served_files.hpp"
#include "api/cli/served_list.hpp"
#include "api/cli/terminal/console.hpp"
#include "api/cli/terminal/progress.hpp"
#include "api/cli/terminal/standard_streams.hpp"
#include "api/http/inherited_socket.hpp"
#include "api/http/service_manager.hpp"
#include "api/record/recorder.hpp"
#include "api/server/endpoint.hpp"
#include "runtime/model/default_sampling.hpp"
#include "runtime/support/machine/build_id.hpp"
#include "runtime/support/text/byte_size.hpp"
#include "runtime/support/text/number_text.hpp"

#include <CLI/CLI.hpp>
#include <boost/asio/ip/address.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

namespace troupe::cli {

namespace {

bool is_every_address(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

std::string_view scheme_of(const server_options& options) { return options.tls_key.empty() ? "http://" : "https://"; }

std::string url_of(const server_options& options, const std::string& host, std::uint16_t port) {
  if (host.starts_with("unix:"))
    return host;
  return std::string(scheme_of(options)) + (host.find(':') != host.npos ? "[" + host + "]" : host) + ":" +
    std::to_string(port);
}

/// A request to paste into a shell.
std::string example(const server_options& options, const std::string& url, const model_info& model) {
  const auto key = has_keys(options) ? " -H \"Authorization: Bearer $TROUPE_API_KEY\"" : "";
  const auto request = [&](const std::string& path, const std::string& body) {
    const auto to = url.starts_with("unix:")
      ? "--unix-socket " + url.substr(5) + ' ' + std::string(scheme_of(options)) + "localhost"
      : url;
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
  log_fields facts;
  if (!url.empty())
    facts.push_back({"url", url});
  log_fields more{{"model", model.id},
                  {"dtype", model.dtype},
                  {"device", model.device},
                  {"weights", to_size(model.weight_bytes)},
                  {"kv_cache", to_size(model.kv_cache_bytes)},
                  {"context", static_cast<std::uint64_t>(model.max_context)}};
  std::ranges::move(more, std::back_inserter(facts));
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

/// Logs the lines of a load, its failure, restarts and news, and shows a bar on a terminal. `alone`: there is no other
/// model, so the server ends with this one.
progress_sink follow(const std::shared_ptr<server_log>& log, bool verbose, bool alone, console& terminal,
                     const service_manager& manager) {
  using stage = load_status::stage;
  const auto bar = std::make_shared<progress>(!verbose, false, [log](std::string_view text) { log->print(text); });
  const auto was_ready = std::make_shared<bool>(false);
  const auto last = std::make_shared<std::string>();
  return [log, bar, was_ready, last, alone, &terminal, &manager](const load_status& status) {
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
      if (alone)
        terminal.post(*status.why);
    }
  };
}

/// One of these for each load of each model.
class followed_loads {
public:
  explicit followed_loads(std::function<progress_sink()> make) : make_(std::move(make)) {}

  void hear(const std::string& name, const load_status& status) {
    progress_sink sink;
    {
      const std::lock_guard lock(mutex_);
      auto& one = by_name_[name];
      const bool loads = status.now == load_status::stage::loading && status.news.empty();
      if (!one.sink || (loads && !one.loads))
        one.sink = make_();
      one.loads = loads || (one.loads && !status.news.empty());
      sink = one.sink;
    }
    sink(status);
  }

private:
  struct load {
    progress_sink sink = {};
    bool loads = false;
  };
  std::mutex mutex_;
  std::map<std::string, load> by_name_;
  std::function<progress_sink()> make_;
};

/// Faults on purpose are for tests, on this machine alone.
void check_fault_injection(const serve_options& options, const std::string& host) {
  if (options.server.fault_injection && !is_loopback(host))
    throw usage_failure("--fault-injection lets clients make parts of the server fail, so --host must be an address of "
                        "this machine alone, as 127.0.0.1, which " +
                        host + " is not");
}

/// Tells the manager that the engines' actors answer, as often as it wants to hear it: one that hangs is not alive.
std::jthread watched(const service_manager& manager, const catalogue& models) {
  if (!manager.watchdog())
    return {};
  return std::jthread([&manager, &models](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    for (std::unique_lock lock(mutex); !stop.stop_requested();) {
      try {
        for (const auto& one : models.models())
          models.stats_of(one->id);
        if (models.is_plural() || models.status().ready)
          manager.alive();
      } catch (const failure&) { // it is stopping, or starts anew
      }
      wake.wait_for(lock, stop, *manager.watchdog(), [] { return false; });
    }
  });
}

/// Before any thread is started, as threads inherit it.
void confine_server(const serve_options& options, const CLI::App& given, const std::vector<catalogue_model>& list) {
  if (options.no_sandbox)
    return;
  auto why_not = sandbox_hindrance(list);
  if (why_not.empty())
    why_not = confine(sandbox_of(options, given, list));
  if (!why_not.empty())
    options.server.log->say(log_level::warn, "sandbox", "the server is not confined: " + why_not);
}

/// Opens the socket by which another process can take this one's place; null: there is none. With `before`, that is
/// listened on already.
std::unique_ptr<control_listener> open_control(const serve_options& options, predecessor* before) {
  const auto path = control_path(options);
  if (path.empty())
    return nullptr;
  if (before)
    return std::make_unique<control_listener>(path, before->take_control());
  try {
    return std::make_unique<control_listener>(path);
  } catch (const failure& f) {
    if (!options.control_socket.empty())
      throw;
    options.server.log->say(log_level::warn, "control",
                            "no other server can take this one's place: " + std::string(f.what()));
    return nullptr;
  }
}

/// Null: nothing is recorded. Throws failure.
std::shared_ptr<recorder> recorder_of(const serve_options& options, const std::vector<catalogue_model>& list,
                                      const std::string& build) {
  if (options.record_folder.empty())
    return nullptr;
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  const recorded_head head{.version = TROUPE_VERSION,
                           .build = build,
                           .begun = to_date("%Y-%m-%dT%H:%M:%SZ", utc).value_or(""),
                           .process = getpid(),
                           .has_prompts = options.record_prompts};
  auto folder = std::make_unique<record_folder>(options.record_folder, head, record_bounds{.all = options.record_bytes},
                                                [log = options.server.log](const std::string& why) {
                                                  log->say(log_level::error, "record",
                                                           "nothing is recorded any more: " + why);
                                                });
  auto made = std::make_shared<recorder>(std::move(folder), options.record_prompts);
  for (const auto& each : list)
    made->add_model(served_name(each.options), checksum_of_files(each.options));
  return made;
}

int serve(serve_options options, const CLI::App& given, const reader& again) {
  std::optional<background> starter;
  if (options.background)
    starter.emplace();
  const auto list = list_served(options, given);
  bound_keys(options, list);
  std::signal(SIGPIPE, SIG_IGN); // who reads the log may go away: that ends nothing
  std::unique_ptr<predecessor> before;
  if (options.replace && control_path(options).empty())
    throw usage_failure("--replace needs the --port of the server whose place it takes, or its --control-socket");
  if (options.replace)
    before = std::make_unique<predecessor>(control_path(options));
  auto control = open_control(options, before.get());
  options.server.movable = control != nullptr;
  if (before) {
    before->give_socket(options.server);
  } else if (const auto inherited = checked_usage(take_inherited_socket)) {
    options.server.host = inherited->host;
    options.server.socket = inherited->descriptor;
  }
  const auto& host = options.server.host;
  const bool open_to_others = check_access(options, host);
  check_fault_injection(options, host);
  confine_server(options, given, list);
  const auto log = options.server.log;
  log->start_thread(); // the first one: it is confined, too, and of the process that serves
  const service_manager manager;
  console terminal;
  terminal.catch_interrupts();
  terminal.catch_hangups({}); // all is read already
  if (const auto limit = raise_descriptor_limit(); limit < most_descriptors(options.server))
    log->write(log_level::warn, "few file descriptors",
               {{"limit", limit}, {"wanted", most_descriptors(options.server)}});
  const bool alone = list.size() == 1 && !options.rules.on_demand;
  for (const auto& each : list)
    if (each.stays || !options.rules.on_demand)
      log->write(log_level::info, "loading", {{"model", each.options.model}});
  followed_loads followed(
    [&, verbose = options.is_verbose()] { return follow(log, verbose, alone, terminal, manager); });
  policy_for_models policy(options.server.policy);
  const auto accept = [&](const served_model& model) {
    try {
      policy.check(model);
    } catch (const failure& f) {
      log->say(log_level::error, "failed", f.what_failed().message);
      throw;
    }
    if (!alone)
      log->write(log_level::info, "loaded", facts_of(model, {}));
  };
  const auto build = build_id(); // before a plug-in is loaded, which is of another build
  catalogue models(
    list, options.rules,
    {.progress = [&](const std::string& name, const load_status& status) { followed.hear(name, status); },
     .accept = accept});
  options.server.record = recorder_of(options, list, build);
  server listening(models, options.server);
  const auto url = url_of(options.server, host, listening.port());
  print("Listening on " + url + (is_every_address(host) ? " (all addresses of this machine)\n" : "\n"));
  const auto local_url = url_of(options.server,
                                host == "0.0.0.0" ? "127.0.0.1"
                                  : host == "::"  ? "::1"
                                                  : host,
                                listening.port());
  if (options.server.page && options.is_verbose() && listening.port() != 0)
    log->say(log_level::info, "page", "open " + local_url + " in a browser to chat and to watch the engine");
  if (options.server.fault_injection)
    log->say(log_level::warn, "faults",
             "clients may make parts of this server fail (--fault-injection): it is for tests");
  if (open_to_others)
    log->say(log_level::warn, "anonymous",
             "without a key, everyone who can reach this address can use the server (--allow-anonymous)");

  std::optional<successors> next;
  const auto old = std::move(before);
  std::atomic<bool> replaced = false;
  const auto await_successor = [&] {
    if (!control)
      return;
    next.emplace(
      std::move(control),
      successors::self{.serving = listening,
                       .host = host,
                       .grace = options.replace_grace,
                       .replaced =
                         [&](std::int64_t process) {
                           replaced = true;
                           log->write(log_level::info, "replaced",
                                      {{"by_process", static_cast<std::uint64_t>(process)},
                                       {"running", std::uint64_t(listening.running_requests())}});
                         },
                       .failed = [&](const std::string& why) { log->say(log_level::warn, "not replaced", why); }});
  };
  if (!old)
    await_successor();
  std::jthread serving([&] {
    listening.run_until_stopped();
    terminal.post(done_event{});
  });
  const stop_at_end stopping{listening}; // also if the next thread cannot be started
  std::jthread loading([&] {
    try {
      models.wait_until_started();
    } catch (const failure& f) { // the log has it, unless the server is stopping
      return terminal.post(f.what_failed());
    }
    if (old) {
      old->take_over(listening, [&](bool well) {
        log->say(well ? log_level::info : log_level::warn, "replaced",
                 well ? "the other server has ended" : "the other server has ended before it had given all away");
      });
      manager.tell("MAINPID=" + std::to_string(::getpid()));
      await_successor();
    }
    if (starter)
      starter->serves();
    const auto first = models.find({});
    if (first && !first->schedule_invariant)
      log->say(log_level::warn, "schedule", schedule_warning(*first));
    if (alone && first)
      log->write(log_level::info, "ready", facts_of(*first, url));
    else
      log->write(log_level::info, "ready", {{"url", url}, {"models", std::uint64_t(list.size())}});
    manager.ready();
    if (!first)
      return;
    if (first->generates)
      log->write(log_level::info, "sampling", {{"by_default", sampling_of(*first)}});
    if (options.is_verbose())
      log->say(log_level::info, "example", "try: " + example(options.server, local_url, *first));
  });
  terminal.catch_hangups([&] {
    manager.reloading();
    reload(listening, models, options.server.record.get(), policy, given, again, host, *log);
    manager.ready();
  });
  const auto watchdog = watched(manager, models);
  // Only these end this wait: an interrupt, the failure of a load at the start or of the only engine, and that another
  // server has taken over all.
  auto broken = terminal.next_event();
  bool ended = broken && std::holds_alternative<done_event>(*broken);
  if (ended)
    broken.reset();
  else if (!broken)
    log->write(log_level::info, "stopping",
               {{"signal", std::string(terminal.last_signal_name())},
                {"running", std::uint64_t(listening.running_requests())},
                {"grace_s", static_cast<std::uint64_t>(options.server.stop_grace.count() / 1000)}});
  terminal.catch_hangups({}); // nothing changes any more
  if (!replaced)
    manager.stopping(); // else it is not the manager's main process any more
  if (!ended)
    listening.stop();
  while (!ended) {
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
  models.stop();
  loading.join();
  if (broken && log->wants(log_level::error))
    return failed; // the log has it
  if (broken)
    throw failure(std::get<error>(*broken).code, std::get<error>(*broken).message);
  if (const auto& record = options.server.record)
    log->write(log_level::info, "recorded", {{"requests", record->recorded()}, {"lines_lost", record->lost()}});
  log->write(log_level::info, "stopped");
  return 0;
}

} // namespace

bool is_loopback(const std::string& host) {
  if (host.starts_with("unix:")) // those whom the path lets in
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
  add_serve_options(*app, *options);
  app->footer("Endpoints:\n" + list_endpoints(100) +
              "\nThe server listens at once and answers /health with 503 until the model is loaded. Ctrl-C or SIGTERM "
              "lets running requests finish, a second one ends them with an error; the exit status is 0. SIGHUP reads "
              "the configuration, keys, certificate and policy again.\n"
              "Examples:\n"
              "  troupe serve\n"
              "  troupe serve --model ~/models/Qwen3-0.6B --port 9000 --kv-cache 4GiB\n"
              "  troupe serve -m chat=~/models/Qwen3-0.6B -m embed=~/models/bge-small --load-on-demand\n"
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
