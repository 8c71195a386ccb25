// What `troupe serve` is asked for: its own flags, and what the files say that they name.
#pragma once

#include "api/catalogue/catalogue.hpp"
#include "api/server/http_server.hpp"

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace troupe::cli {

struct serve_options {
  server_options server;
  engine_options engine;
  bool allow_anonymous = false;
  bool replace = false;                                               // the server that runs: take its place
  bool background = false;                                            // with `replace`: return once it serves
  std::string control_socket = {};                                    // empty: the usual one
  std::chrono::milliseconds replace_grace = std::chrono::minutes(10); // for what cannot move to who takes the place
  bool no_sandbox = false;                                            // touch any file that the user may touch
  std::optional<log_level> level;                                     // unset: info, or off if quiet
  log_format format = log_format::text;
  std::optional<std::size_t> per_key;
  bool quiet = false;
  std::string key_file, keys_file, metrics_key_file, admin_key_file, policy_file, tls_certificate, tls_key;
  std::vector<std::string> models = {}; // PATH or NAME=PATH; none: those of the configuration, or the bundled one
  std::string record_folder = {};       // of what is asked and answered; empty: nothing is recorded
  bool record_prompts = true;
  std::size_t record_bytes = std::size_t(1) << 30;
  std::string models_folder = {}; // all models below it; empty: none
  catalogue_rules rules = {};
  flag_values techniques; // of the server

  /// Whether stderr gets more than lines: a bar on a terminal, and an example request.
  bool is_verbose() const { return format == log_format::text && server.log->wants(log_level::info); }
};

/// All flags of the command.
void add_serve_options(CLI::App& command, serve_options& options);

/// Reads what the environment and the files say that flags name. Throws failure.
void take_files(serve_options& options);

/// The bounds of what one key may have running and waiting in engines of these options, unless flags say them.
void bound_keys(serve_options& options, const std::vector<catalogue_model>& engines);

log_level level_of(const serve_options& options);

bool has_keys(const server_options& options);

/// Where another process takes this server's place; empty: nowhere.
std::filesystem::path control_path(const serve_options& options);

} // namespace troupe::cli
