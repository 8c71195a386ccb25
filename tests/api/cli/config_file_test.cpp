#include "api/cli/config_file.hpp"
#include "runtime/support/error.hpp"
#include "tests/api/cli/program.hpp"

#include <CLI/CLI.hpp>
#include <doctest/doctest.h>

using namespace troupe;
using troupe::cli::config_arguments;

namespace {

using strings = std::vector<std::string>;

/// A program with two commands and one below another, and a configuration file for it.
struct fixture {
  fixture() {
    for (auto* command : {run, serve, bench_model}) {
      command->add_option("--threads");
      command->add_option("--config")->configurable(false);
    }
    run->add_option("--stop")->take_all();
    run->add_option("text");
    run->add_flag("--raw");
    serve->add_option("--host");
    bench_model->add_option("--batch");
  }

  strings arguments(const std::string& text, const CLI::App& chosen) {
    file = folder.write("x.toml", text);
    return config_arguments(file, root, chosen);
  }

  /// The complaint after the file's name.
  std::string refusal(const std::string& text, const CLI::App& chosen) {
    try {
      arguments(text, chosen);
    } catch (const failure& e) {
      const std::string what = e.what();
      CHECK(what.starts_with(file + ": "));
      return what.substr(std::min(what.size(), file.size() + 2));
    }
    return "none";
  }

  test::temporary_folder folder;
  std::string file;
  CLI::App root;
  CLI::App* run = root.add_subcommand("run");
  CLI::App* serve = root.add_subcommand("serve");
  CLI::App* bench = root.add_subcommand("bench");
  CLI::App* bench_model = bench->add_subcommand("model");
};

} // namespace

TEST_CASE_FIXTURE(fixture, "keys at the top are for every command that has such a flag") {
  const auto text = "threads = 2\nhost = \"0.0.0.0\"\n";
  CHECK(arguments(text, *serve) == strings{"--threads=2", "--host=0.0.0.0"});
  CHECK(arguments(text, *run) == strings{"--threads=2"});
  CHECK(arguments(text, *bench_model) == strings{"--threads=2"});
}

TEST_CASE_FIXTURE(fixture, "a section is for its command alone and wins over the top") {
  const auto text = "threads = 2\n[serve]\nthreads = 4\n[bench.model]\nthreads = 1\nbatch = \"1,8\"\n";
  CHECK(arguments(text, *serve) == strings{"--threads=4"});
  CHECK(arguments(text, *run) == strings{"--threads=2"});
  CHECK(arguments(text, *bench_model) == strings{"--threads=1", "--batch=1,8"});
}

TEST_CASE_FIXTURE(fixture, "what the command line gives is not taken from the file") {
  root.parse("serve --threads 8");
  CHECK(arguments("threads = 2\nhost = \"::\"\n", *serve) == strings{"--host=::"});
  CHECK(arguments("[serve]\nthreads = 2\n", *serve).empty());
}

TEST_CASE_FIXTURE(fixture, "flags take true and false, lists several values") {
  CHECK(arguments("raw = true\n", *run) == strings{"--raw=true"});
  CHECK(arguments("raw = false\n", *run) == strings{"--raw=false"});
  CHECK(arguments("stop = [\"one\", \"two, three\"]\n", *run) == strings{"--stop=one", "--stop=two, three"});
}

TEST_CASE_FIXTURE(fixture, "a # starts a comment, but not within quotes") {
  CHECK(arguments("# all of it\nthreads = 2 # cores\nstop = \"a # b\" # \"c\"\n", *run) ==
        strings{"--threads=2", "--stop=a # b"});
}

TEST_CASE_FIXTURE(fixture, "unknown keys and sections are refused by their name, whichever command runs") {
  CHECK(refusal("treads = 2\n", *run) == "unknown key `treads`");
  CHECK(refusal("[serve]\ntreads = 2\n", *run) == "unknown key `serve.treads`");
  CHECK(refusal("[serve]\nraw = true\n", *serve) == "unknown key `serve.raw`");
  CHECK(refusal("[server]\nhost = \"::\"\n", *serve) == "unknown section [server]");
  CHECK(refusal("[bench]\nbatch = 1\n", *serve) == "unknown key `bench.batch`");
}

TEST_CASE_FIXTURE(fixture, "what is no flag of a setting's kind is no key") {
  for (const std::string key : {"config", "help", "text", "h"})
    CHECK(refusal(key + " = 1\n", *run) == "unknown key `" + key + "`");
}

TEST_CASE_FIXTURE(fixture, "a key without a value is refused") {
  CHECK(refusal("threads =\n", *run) == "`threads` has no value");
  CHECK(refusal("threads = \"\"\n", *run) == "`threads` has no value");
}

TEST_CASE_FIXTURE(fixture, "a file that is not there is refused, a folder too") {
  const auto none = (folder.path / "none.toml").string();
  for (const auto& path : {none, folder.path.string()}) {
    std::string why;
    try {
      config_arguments(path, root, *run);
    } catch (const failure& e) {
      why = e.what();
    }
    CHECK(why == path + (path == none ? ": no such file" : ": is a folder, not a regular file"));
  }
}
