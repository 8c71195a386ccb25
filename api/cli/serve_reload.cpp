#include "api/cli/serve_reload.hpp"

#include "api/cli/commands/serve.hpp"
#include "api/cli/serve_options.hpp"
#include "api/cli/served_files.hpp"
#include "api/cli/served_list.hpp"
#include "runtime/import/model_source.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace troupe::cli {

namespace {

/// Flags whose values, or files, are put in force by `reload`.
constexpr std::array<std::string_view, 17> live_flags{"api-key",          "api-key-file",    "api-keys",
                                                      "metrics-key-file", "admin-key-file",  "policy",
                                                      "cors-origin",      "allowed-hosts",   "max-requests-per-key",
                                                      "header-timeout",   "allow-anonymous", "idle-timeout",
                                                      "stop-grace",       "log-level",       "config",
                                                      "tls-cert",         "tls-key"};

/// And these where several models are served.
constexpr std::array<std::string_view, 2> live_flags_of_several{"model", "models-dir"};

/// A server that is confined cannot read files that nothing named when it started.
void check_readable(const std::vector<catalogue_model>& list) {
  for (const auto& each : list) {
    const auto place = path_of_model(each.options.model);
    const int opened = ::open(place.c_str(), O_RDONLY | O_CLOEXEC);
    if (opened < 0 && errno == EACCES)
      throw failure(errc::bad_request,
                    "the model `" + served_name(each.options) + "`: " + place +
                      " may not be read; a server that is confined reads only below what its settings named when it "
                      "started (its --models-dir, for example), and others take a restart, or --no-sandbox");
    if (opened >= 0)
      ::close(opened);
  }
}

/// Tells what another list of models has changed; those that are new are recorded from now on.
void tell_changes(const catalogue_changes& what, const std::vector<catalogue_model>& list, recorder* record,
                  server_log& log) {
  if (what.takes_a_restart)
    log.say(log_level::warn, "reload",
            "the list of models has changed, which takes a restart: this server began with a single model");
  const auto tell = [&](const char* how, const std::vector<std::string>& names) {
    for (const auto& name : names)
      log.write(log_level::info, how, {{"model", name}});
  };
  tell("removed", what.removed);
  tell("added", what.added);
  tell("renamed", what.renamed);
  for (const auto& each : list)
    if (record && std::ranges::find(what.added, served_name(each.options)) != what.added.end())
      record->add_model(served_name(each.options), checksum_of_files(each.options));
}

} // namespace

bool check_access(const serve_options& options, const std::string& host) {
  const bool open_to_others = !has_keys(options.server) && !is_loopback(host);
  if (open_to_others && !options.allow_anonymous)
    throw usage_failure("other machines could use this server, as --host is " + host +
                        " and there is no API key: give one with --api-key-file (or in TROUPE_API_KEY), or let "
                        "everybody in with --allow-anonymous");
  return open_to_others;
}

void reload(server& listening, catalogue& models, recorder* record, policy_for_models& policy, const CLI::App& given,
            const reader& again, const std::string& host, server_log& log) {
  try {
    const auto now = again();
    auto& next = *static_cast<serve_options*>(now.given.get());
    take_files(next);
    auto list = list_served(next, *now.options);
    if (models.is_plural()) {
      for (auto& each : list) // also if it is the only one now
        each.options.model_name = served_name(each.options);
      check_readable(list);
    }
    bound_keys(next, list);
    check_access(next, host);
    for (const auto& model : models.models())
      check_policy(next.server.policy, *model);
    listening.check(next.server);
    const auto changes = models.list(list);
    listening.reload(next.server);
    policy.set(next.server.policy);
    log.set_level(level_of(next));
    log.write(log_level::info, "reloaded");
    tell_changes(changes, list, record, log);
    for (const auto* before : given.get_options()) {
      const auto name = before->get_lnames().empty() ? std::string() : before->get_lnames().front();
      const auto* after = now.options->get_option_no_throw("--" + name);
      if (!name.empty() && after && before->results() != after->results() &&
          std::ranges::find(live_flags, name) == live_flags.end() &&
          !(models.is_plural() && std::ranges::find(live_flags_of_several, name) != live_flags_of_several.end()))
        log.say(log_level::warn, "reload", "--" + name + " has another value now, which takes a restart");
    }
  } catch (const failure& e) {
    log.say(log_level::error, "reload", "nothing is changed: " + std::string(e.what()));
  }
}

} // namespace troupe::cli
