#include "api/cli/config_file.hpp"
#include "runtime/support/error.hpp"
#include "tests/api/cli/program.hpp"

#include <CLI/CLI.hpp>
#include <doctest/doctest.h>

using namespace troupe;
using troupe::cli::config_arguments;

namespace {

using strings = std::vector<std::string>;

/// A program with two commands and a nested one, and a configuration file for it.
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
    strings texts;
    for (const auto& argument : config_arguments(file, root, chosen))
      texts.push_back(argument.text);
    return texts;
  }

  /// The error after the file's name.
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

TEST_CASE_FIXTURE(fixture, "flags on the command line win over the file") {
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

TEST_CASE_FIXTURE(fixture, "unknown keys and sections are refused by name, whichever command runs") {
  CHECK(refusal("treads = 2\n", *run) == "line 1: unknown key `treads`");
  CHECK(refusal("[serve]\ntreads = 2\n", *run) == "line 2: unknown key `serve.treads`");
  CHECK(refusal("[serve]\nraw = true\n", *serve) == "line 2: unknown key `serve.raw`");
  CHECK(refusal("threads = 1\n\n[server]\nhost = \"::\"\n", *serve) == "line 3: unknown section [server]");
  CHECK(refusal("[bench]\nbatch = 1\n", *serve) == "line 2: unknown key `bench.batch`");
}

TEST_CASE_FIXTURE(fixture, "flags and arguments that are no settings are no keys") {
  for (const std::string key : {"config", "help", "text", "h"})
    CHECK(refusal(key + " = 1\n", *run) == "line 1: unknown key `" + key + "`");
}

TEST_CASE_FIXTURE(fixture, "a key without a value is refused") {
  CHECK(refusal("threads = \"\"\n", *run) == "line 1: `threads` has no value");
  CHECK(refusal("stop = []\n", *run) == "line 1: `stop` has no value");
  CHECK(refusal("raw = true\nthreads =\n", *run).starts_with("line 2: "));
}

TEST_CASE_FIXTURE(fixture, "a file is TOML: escapes, text over several lines, dotted keys, numbers of any base") {
  CHECK(arguments("stop = [\n  \"a\\tb\",\n  'c\\d',\n]\n", *run) == strings{"--stop=a\tb", "--stop=c\\d"});
  CHECK(arguments("stop = \"\"\"one\ntwo\"\"\"\n", *run) == strings{"--stop=one\ntwo"});
  CHECK(arguments("serve.threads = 0x10\nthreads = 1_000\n", *serve) == strings{"--threads=16"});
  CHECK(arguments("bench = { model = { batch = 2.5 } }\n", *bench_model) == strings{"--batch=2.5"});
}

TEST_CASE_FIXTURE(fixture, "invalid TOML and values that no flag takes are refused with their line") {
  CHECK(refusal("raw = true\nhost = localhost\n", *run).starts_with("line 2: "));
  CHECK(refusal("threads = 1\nthreads = 2\n", *run).starts_with("line 2: "));
  CHECK(refusal("threads = 2026-01-01\n", *run) ==
        "line 1: `threads` must be text, a number, true or false, or a list of those");
  CHECK(refusal("stop = [[\"a\"]]\n", *run) ==
        "line 1: `stop` must be text, a number, true or false, or a list of those");
}

TEST_CASE_FIXTURE(fixture, "a missing file and a folder are refused") {
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

TEST_CASE_FIXTURE(fixture, "what the parser refuses is told with its line") {
  file = folder.write("x.toml", "# first\nthreads = 2\nstop = [\"a\", \"b\"]\n\n[run]\nraw = true\n");
  const auto all = config_arguments(file, root, *run);
  CHECK(cli::refused_argument(file, all, "--threads: must be 1, found `2`") ==
        file + ": line 2: --threads: must be 1, found `2`");
  CHECK(cli::refused_argument(file, all, "--stop: must be x, found `b`") ==
        file + ": line 3: --stop: must be x, found `b`");
  CHECK(cli::refused_argument(file, all, "Could not convert: --raw = true").starts_with(file + ": line 6: "));
  CHECK(cli::refused_argument(file, all, "--thread: is missing") == file + ": --thread: is missing");
}
