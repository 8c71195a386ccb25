#include "api/hub/pull.hpp"
#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/terminal/escaped_output.hpp"
#include "api/cli/terminal/standard_streams.hpp"
#include "api/cli/values.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/support/text/byte_size.hpp"
#include "runtime/support/text/utf8.hpp"
#include "runtime/support/text/visible_text.hpp"

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>

#include <unistd.h>

namespace troupe::cli {

namespace {

struct pull_flags {
  std::string model, revision = "main";
  int idle_seconds = 30;
  bool verify = false, quiet = false, json = false;
};

/// How far a download is: a bar on a terminal, otherwise a line for each file.
class download_bar {
public:
  explicit download_bar(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO)) {}
  ~download_bar() { erase(); }
  download_bar(const download_bar&) = delete;
  download_bar& operator=(const download_bar&) = delete;

  void show(const hub::pull_progress& at) {
    if (quiet_)
      return;
    if (!at.news.empty())
      line(at.news);
    if (!terminal_) {
      if (at.file != file_)
        line(at.file);
      file_ = at.file;
      return;
    }
    const auto now = clock::now();
    if (now - shown_ < std::chrono::milliseconds(100) && at.done < at.total)
      return;
    shown_ = now;
    constexpr int width = 24;
    const auto share = at.total == 0 ? 0.0 : static_cast<double>(at.done) / static_cast<double>(at.total);
    const auto full = static_cast<std::size_t>(share * width);
    const auto seconds = std::chrono::duration<double>(now - began_).count();
    const auto rate = seconds > 0 ? static_cast<double>(at.received) / seconds : 0;
    auto text = "\r[" + std::string(full, '#') + std::string(width - full, ' ') + "] " +
      to_size(static_cast<std::size_t>(at.done)) + " of " + to_size(static_cast<std::size_t>(at.total));
    if (at.received > 0)
      text += ", " + to_size(static_cast<std::size_t>(rate)) + "/s" + left(at, rate);
    std::fputs((text + "\033[K").c_str(), terminal_errors());
    drawn_ = true;
  }

private:
  using clock = std::chrono::steady_clock;

  static std::string left(const hub::pull_progress& at, double rate) {
    if (rate < 1 || at.done >= at.total)
      return {};
    const auto seconds = static_cast<long>(static_cast<double>(at.total - at.done) / rate);
    if (seconds >= 24L * 3600)
      return {};
    const auto two = [](long n) { return (n < 10 ? "0" : "") + std::to_string(n); };
    return ", " +
      (seconds >= 3600 ? std::to_string(seconds / 3600) + ":" + two(seconds / 60 % 60) : std::to_string(seconds / 60)) +
      ":" + two(seconds % 60) + " left";
  }

  void line(const std::string& text) {
    erase();
    std::fputs(("troupe: " + visible_name(text) + "\n").c_str(), stderr);
  }

  void erase() {
    if (drawn_)
      std::fputs("\r\033[K", terminal_errors());
    drawn_ = false;
  }

  bool quiet_, terminal_, drawn_ = false;
  std::string file_;
  clock::time_point began_ = clock::now(), shown_ = {};
};

int pull(const pull_flags& flags) {
  auto options = checked_usage([] { return hub::options_of_environment(); });
  options.verify = flags.verify;
  options.limits.idle = std::chrono::seconds(flags.idle_seconds);
  auto what = checked_usage([&] { return hub::parse_model_request(flags.model, options.endpoint); });
  what.revision = flags.revision;
  if (!hub::is_revision(what.revision))
    throw usage_failure("--revision: `" + flags.revision + "` is not the name of a branch, a tag or a version");
  const auto pulled = [&] {
    download_bar bar(flags.quiet);
    return hub::pull_model(what, options, [&](const hub::pull_progress& at) { bar.show(at); });
  }();
  if (flags.json) {
    print("{\"name\":" + json_text(to_utf8(pulled.name)) + ",\"path\":" + json_text(to_utf8(pulled.path.string())) +
          ",\"version\":" + json_text(pulled.commit) + ",\"files\":" + std::to_string(pulled.files) + ",\"bytes\":" +
          std::to_string(pulled.bytes) + ",\"received_bytes\":" + std::to_string(pulled.received) + "}\n");
    return 0;
  }
  print(visible_name(pulled.name) + ": " + std::to_string(pulled.files) + (pulled.files == 1 ? " file, " : " files, ") +
        to_size(static_cast<std::size_t>(pulled.bytes)) + (pulled.received == 0 ? ", all there already" : "") +
        ", in " + visible_name(pulled.path.string()) + "\n");
  return 0;
}

} // namespace

command add_pull(CLI::App& troupe) {
  const auto flags = std::make_shared<pull_flags>();
  auto* app = troupe.add_subcommand("pull", "Download a model from the Hugging Face hub");
  app
    ->add_option("MODEL", flags->model,
                 "ORG/NAME, or ORG/NAME:FORMAT, such as Q4_K_M, for one of the GGUF files of a repository")
    ->required();
  app->add_option("--revision", flags->revision, "The branch, tag or version to take")
    ->type_name("NAME")
    ->capture_default_str();
  app->add_flag("--verify", flags->verify, "Compare files that are there already with their checksums, too");
  app->add_option("--timeout", flags->idle_seconds, "Seconds without a byte after which a connection counts as broken")
    ->check(integer_between(1, 3600))
    ->type_name("SECONDS")
    ->capture_default_str();
  app->add_flag("-q,--quiet", flags->quiet, "Print only the result and errors")->group(output_group);
  app->add_flag("--json", flags->json, "Print one JSON object rather than a line")->group(output_group);
  add_common_options(*app);
  app->footer(
    "The model is stored as Hugging Face's own programs do, in $HF_HOME, and they find it there. A pull that was "
    "broken off goes on where it was, and checksums are compared. HF_TOKEN gives access to private and gated "
    "models, HF_ENDPOINT names another server than https://huggingface.co.\n"
    "Examples:\n"
    "  troupe pull Qwen/Qwen3-0.6B\n"
    "  troupe pull Qwen/Qwen3-0.6B-GGUF:Q8_0 && troupe chat --model Qwen/Qwen3-0.6B-GGUF:Q8_0");
  return {app, [flags] { return pull(*flags); }};
}

} // namespace troupe::cli
