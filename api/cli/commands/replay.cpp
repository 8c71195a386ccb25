#include "api/catalogue/catalogue.hpp"
#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/policy_file.hpp"
#include "api/cli/replay_run.hpp"
#include "api/cli/serve_options.hpp"
#include "api/cli/served_files.hpp"
#include "api/cli/served_list.hpp"
#include "api/cli/terminal/console.hpp"
#include "api/cli/terminal/progress.hpp"
#include "api/cli/values.hpp"
#include "runtime/engine/loading/replica_roles.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/support/machine/build_id.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <set>

namespace troupe::cli {

namespace {

constexpr const char* own_version = TROUPE_VERSION;

struct replay_options {
  std::string folder;
  serve_options served; // the models' settings alone
  std::string policy_file;
  replay_rules rules;
  bool json = false;
};

/// Gives models the names that they had, by which requests find them.
void take_names(record_reader& record, std::vector<catalogue_model>& list) {
  if (list.size() != 1)
    return;
  std::set<std::string> names;
  for (const auto& [name, _] : record.models())
    names.insert(name);
  constexpr std::size_t most = 256;
  for (std::size_t i = 0; i < record.size() && names.size() < most; ++i) {
    try {
      const auto body = json::document::parse(record.begin(i).body, "the body");
      if (const auto name = json::find(body.root(), "model"); name && name->is_string())
        names.insert(std::string(std::string_view(*name)));
    } catch (const failure&) { // its replay will tell
    }
  }
  names.erase("");
  list.front().aliases.insert(list.front().aliases.end(), names.begin(), names.end());
}

void tell_what_differs(record_reader& record, const std::vector<catalogue_model>& list) {
  std::set<std::string> others;
  const auto own_build = build_id();
  for (const auto& run : record.runs())
    if (run.version != own_version)
      others.insert("Recorded by version " + run.version + "; this is " + own_version);
    else if (!run.build.empty() && run.build != own_build)
      others.insert("Recorded by another build of version " + run.version + " (GNU build id " + run.build +
                    "; this is " + (own_build.empty() ? "not known" : own_build) + ")");
  for (const auto& line : others)
    std::cerr << line << "\n";
  std::set<std::string> now;
  for (const auto& each : list)
    now.insert(checksum_of_files(each.options));
  for (const auto& [name, files] : record.models())
    if (!files.empty() && !now.contains(files))
      std::cerr << "The files of " << name << " are other ones than when it was recorded (then " << files << ")\n";
}

int replay_folder(const CLI::App& app, replay_options options) {
  record_reader record(options.folder);
  if (!options.policy_file.empty())
    options.rules.policy = read_policy(options.policy_file);
  auto list = list_served(options.served, app);
  take_names(record, list);
  if (!options.served.quiet)
    tell_what_differs(record, list);
  options.rules.most = 0;
  for (const auto& each : list)
    options.rules.most += 2 * static_cast<std::size_t>(replica_count(each.options) * each.options.max_sequences);
  console terminal; // outlives the engines, which post to it
  terminal.catch_interrupts();
  progress bar(options.served.quiet, false);
  catalogue models(list, {});
  models.wait_until_started();
  const auto size = options.rules.limit > 0 ? std::min(options.rules.limit, record.size()) : record.size();
  const auto report = replay(record, models, options.rules, terminal, [&](std::size_t ended) {
    load_status status;
    status.done_bytes = ended;
    status.total_bytes = size;
    bar.show(status);
  });
  bar.end_bar();
  std::cout << (options.json ? json_of(report) + "\n" : text_of(report, options.rules)) << std::flush;
  return report.interrupted ? interrupted : report.differing > 0 || !report.refused.empty() ? failed : 0;
}

} // namespace

command add_replay(CLI::App& troupe) {
  const auto options = std::make_shared<replay_options>();
  auto* app = troupe.add_subcommand("replay", "Ask again what `serve --record` has recorded, and compare");
  app->add_option("DIR", options->folder, "The folder of `serve --record`")->required()->type_name("DIR");
  app
    ->add_option("--speed", options->rules.speed,
                 "Times as fast as it was recorded; 0: as fast as it goes, twice as many sequences as run at a time")
    ->check(number_between(0, 1000))
    ->type_name("NUMBER")
    ->capture_default_str();
  app->add_option("--limit", options->rules.limit, "Only the first so many requests; 0: all")
    ->check(integer_between(0, 1 << 30))
    ->type_name("INT");
  const auto goal = [&](const char* flag, double& value, const char* help) {
    app->add_option(flag, value, help)->check(number_between(0, 1e9))->type_name("MS")->capture_default_str();
  };
  goal("--ttft-goal", options->rules.ttft_goal_ms, "Goodput: the first token comes within this time");
  goal("--tpot-goal", options->rules.tpot_goal_ms, "Goodput: tokens come in this time on average");
  add_file(*app, "--policy", options->policy_file, "The policy that the server had, as it held for all");
  app->add_flag("--json", options->json, "Print a JSON object")->group(output_group);
  app->add_flag("--quiet", options->served.quiet, "No progress")->group(output_group);
  add_model_settings(*app, options->served.engine, &options->served.models);
  add_common_options(*app);
  app->footer("Answers are compared token by token, with the bits of their log-probabilities. They do not depend on\n"
              "threads, replicas, caches or what else runs, so what differs is the model, the program, or a fault.\n"
              "Examples:\n"
              "  troupe serve --record ~/hour\n"
              "  troupe replay ~/hour --speed 0 --threads 1 --replicas 2\n"
              "Exit status: 0; 1 if an answer differs or a request is refused; 2 for a wrong command line; 130 after "
              "Ctrl-C.");
  return {app, [app, options] { return replay_folder(*app, *options); }};
}

} // namespace troupe::cli
