#include "api/cli/commands/median.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/terminal/standard_streams.hpp"
#include "api/cli/values.hpp"
#include "kernels/block_transfer.hpp"
#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/kv/kv_store.hpp"
#include "runtime/model/precision.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/support/text/byte_size.hpp"
#include "tests/bench/tools/tools.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

struct kv_move_options {
  std::string model;
  std::string kv_dtype = "bf16";
  std::string folder;
  int threads = 0, blocks = 256, repeat = 9;
  bool json = false;
};

/// A folder of its own below the one named, removed with its contents.
class bench_folder {
public:
  explicit bench_folder(const fs::path& below) {
    auto name = (below / "troupe-kv-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      throw failure(errc::bad_file, below.string() + ": cannot be written to");
    path_ = name;
  }
  ~bench_folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  bench_folder(const bench_folder&) = delete;
  bench_folder& operator=(const bench_folder&) = delete;
  const fs::path& path() const { return path_; }

private:
  fs::path path_;
};

class kv_move_bench {
public:
  explicit kv_move_bench(const kv_move_options& options)
    : options_(options),
      backend_(kernels::make_cpu_backend({.threads = options.threads})),
      pool_(options.threads),
      folder_(options.folder.empty() ? fs::temp_directory_path() : fs::path(options.folder)) {
    auto source = open_model(options.model);
    precision numbers(kernels::dtype::bf16);
    for (const auto kv : {kernels::kv_type::f32, kernels::kv_type::bf16, kernels::kv_type::int8, kernels::kv_type::fp8})
      if (options.kv_dtype == kernels::to_string(kv))
        numbers.kv = kv;
    const auto shape = kv_shape_of(source.config, numbers, blocks());
    bytes_ = shape.block_bytes();
    from_ = backend_->make_kv_cache(shape);
    to_ = backend_->make_kv_cache(shape);
    memory_ = backend_->allocate(bytes_ * blocks());
    other_ = backend_->allocate(bytes_ * blocks());
    fill();
    store_ = kv_store::open({folder_.path(), std::size_t(1) << 50},
                            {0, shape.layers, "cpu", "bench", "bench", options.kv_dtype, "bench"}, bytes_,
                            [](const std::string& line) { throw failure(errc::bad_file, line); });
    if (!store_)
      throw failure(errc::bad_file, folder_.path().string() + ": cannot be written to");
  }

  /// GB/s of each way, measured in turn.
  void measure() {
    write_files();
    for (int run = 0; run < options_.repeat; ++run) {
      time(copied, [&] { copy(); });
      time(exported, [&] { transfer().export_blocks(*from_, exports_); });
      time(imported, [&] { transfer().import_blocks(*to_, imports_); });
      drop_pages();
      time(plain_disk, [&] { read_plainly(); });
      drop_pages();
      time(store_disk, [&] { read_from_store(); });
      read_plainly(); // so that all is in the page cache
      time(plain_cached, [&] { read_plainly(); });
      time(store_cached, [&] { read_from_store(); });
    }
    check();
  }

  std::size_t bytes() const { return bytes_; }
  std::size_t blocks() const { return static_cast<std::size_t>(options_.blocks); }
  int threads() const { return pool_.size(); }

  std::vector<double> copied, exported, imported, plain_disk, store_disk, plain_cached, store_cached;

private:
  kernels::block_transfer& transfer() { return dynamic_cast<kernels::block_transfer&>(*backend_); }

  char* place(const kernels::buffer& memory, std::size_t block) const {
    return static_cast<char*>(memory.get()) + block * bytes_;
  }

  void fill() {
    std::mt19937_64 random(1);
    for (std::size_t i = 0; i < bytes_ * blocks(); i += 8) {
      const auto word = random();
      std::memcpy(static_cast<char*>(memory_.get()) + i, &word, 8);
    }
    // Blocks lie as they come after some time of use: not one after another.
    std::vector<std::int32_t> order(blocks());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, random);
    for (std::size_t i = 0; i < blocks(); ++i) {
      imports_.push_back({place(memory_, i), order[i]});
      exports_.push_back({order[i], place(other_, i)});
    }
    transfer().import_blocks(*from_, imports_);
    transfer().export_blocks(*from_, exports_);
  }

  template <class Work>
  void time(std::vector<double>& rates, const Work& work) {
    const auto began = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    rates.push_back(static_cast<double>(bytes_ * blocks()) / took.count() / 1e9);
  }

  void copy() {
    pool_.parallel_for(blocks(), [&](std::size_t i, int) { std::memcpy(place(other_, i), place(memory_, i), bytes_); });
  }

  void write_files() {
    auto key = store_->keys().root(0);
    std::vector<token_id> tokens(kernels::block_tokens);
    for (std::size_t i = 0; i < blocks(); ++i) {
      std::ranges::fill(tokens, static_cast<token_id>(i));
      key = store_->keys().next(key, tokens);
      block_image image;
      image.key = key;
      image.place = static_cast<std::int32_t>(i);
      std::ranges::copy(tokens, image.tokens.begin());
      image.bytes = {reinterpret_cast<std::byte*>(place(memory_, i)), bytes_};
      if (!store_->write(image))
        throw failure(errc::bad_file, folder_.path().string() + ": the disk is full");
      images_.push_back(image);
      files_.push_back(store_->file_of(key));
    }
    for (const auto& file : files_) // pages that are not on the disk yet cannot be dropped
      with_file(file, [](int opened) { fsync(opened); });
  }

  template <class Use>
  static void with_file(const fs::path& file, const Use& use) {
    const int opened = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (opened < 0)
      throw failure(errc::bad_file, file.string() + ": cannot be read");
    use(opened);
    close(opened);
  }

  void drop_pages() {
    for (const auto& file : files_)
      with_file(file, [](int opened) { posix_fadvise(opened, 0, 0, POSIX_FADV_DONTNEED); });
  }

  void read_plainly() {
    for (std::size_t i = 0; i < blocks(); ++i)
      with_file(files_[i], [&](int opened) {
        for (std::size_t done = 0; done < bytes_;)
          if (const auto got = ::read(opened, place(other_, i) + done, bytes_ - done); got > 0)
            done += static_cast<std::size_t>(got);
          else
            throw failure(errc::bad_file, files_[i].string() + ": cannot be read");
      });
  }

  void read_from_store() {
    for (std::size_t i = 0; i < blocks(); ++i) {
      images_[i].bytes = {reinterpret_cast<std::byte*>(place(other_, i)), bytes_};
      if (store_->read(images_[i]) != kv_store::outcome::found)
        throw failure(errc::internal, "a block that was written is not found");
    }
  }

  // What was moved is what was there.
  void check() {
    transfer().export_blocks(*to_, exports_);
    read_from_store();
    for (std::size_t i = 0; i < blocks(); ++i)
      if (std::memcmp(place(other_, i), place(memory_, i), bytes_) != 0)
        throw failure(errc::internal, "a block has changed on its way");
  }

  const kv_move_options& options_;
  std::unique_ptr<kernels::backend> backend_;
  kernels::thread_pool pool_;
  bench_folder folder_;
  std::size_t bytes_ = 0;
  std::unique_ptr<kernels::kv_cache> from_, to_;
  kernels::buffer memory_, other_;
  std::vector<kernels::block_export> exports_;
  std::vector<kernels::block_import> imports_;
  std::unique_ptr<kv_store> store_;
  std::vector<block_image> images_;
  std::vector<fs::path> files_;
};

int run_kv_move_bench(const kv_move_options& options) {
  require_model(options.model);
  kv_move_bench bench(options);
  bench.measure();
  const auto copied = median(bench.copied), plain = median(bench.plain_disk), cached = median(bench.plain_cached);
  struct row {
    const char* name;
    const char* key;
    double rate;
    double of;
  };
  const row rows[] = {{"memcpy", "memcpy", copied, copied},
                      {"pool to images", "export", median(bench.exported), copied},
                      {"images to pool", "import", median(bench.imported), copied},
                      {"plain reads, disk", "disk_plain", plain, plain},
                      {"blocks from files, disk", "disk", median(bench.store_disk), plain},
                      {"plain reads, page cache", "cached_plain", cached, cached},
                      {"blocks from files, page cache", "cached", median(bench.store_cached), cached}};
  if (options.json) {
    std::cout << "{\"blocks\":" << bench.blocks() << ",\"block_bytes\":" << bench.bytes()
              << ",\"threads\":" << bench.threads();
    for (const auto& r : rows)
      std::cout << ",\"" << r.key << "_gbps\":" << json_number(r.rate);
    std::cout << "}\n";
  } else {
    std::printf("%zu blocks of %s, %d threads in memory, one for files; medians of %d\n\n%-30s  %6s  %s\n",
                bench.blocks(), to_size(bench.bytes()).c_str(), bench.threads(), options.repeat, "", "GB/s", "share");
    for (const auto& r : rows)
      std::printf("%-30s  %6.2f  %.2f\n", r.name, r.rate, r.rate / r.of);
  }
  flush_output();
  return 0;
}

} // namespace

command add_bench_kv_move(CLI::App& bench) {
  const auto options = std::make_shared<kv_move_options>();
  auto* app = bench.add_subcommand("kv-move", "Measure how fast blocks of the KV cache leave it and come back");
  const auto count = [&](const char* flag, int& value, int low, int high, const char* help) {
    app->add_option(flag, value, help)->check(integer_between(low, high))->type_name("INT")->capture_default_str();
  };
  count("--blocks", options->blocks, 1, 1 << 20, "Blocks of 16 tokens to move");
  count("--repeat", options->repeat, 1, 1000, "Runs to take medians of");
  count("--threads", options->threads, 0, 1024, "Threads that move blocks in memory; 0: one per core");
  app->add_option("--kv-dtype", options->kv_dtype, "Type of the KV cache")
    ->check(one_of({"f32", "bf16", "int8", "fp8"}))
    ->type_name("TYPE")
    ->capture_default_str();
  app
    ->add_option("--folder", options->folder,
                 "Where to write files, on the disk to be measured; empty: the temporary folder")
    ->type_name("FOLDER");
  app->add_flag("--json", options->json, "Print one JSON object, not a table")->group(output_group);
  add_model_option(*app, options->model);
  add_common_options(*app);
  app->footer(
    "Moves blocks of a model's KV cache to images in memory and back, beside memcpy of as many bytes by as many "
    "threads; and reads them from files as --kv-disk does, beside plain reads of the same files into the same "
    "memory, from the disk (their pages are dropped before) and from the page cache. The ways are measured in "
    "turn. Only the shape of the model is read.\n"
    "Examples:\n"
    "  troupe_bench_tools bench kv-move --model synthetic:llama-1b\n"
    "  troupe_bench_tools bench kv-move --model ~/models/Qwen3-0.6B --blocks 64 --folder /var/tmp");
  return {app, [options] { return run_kv_move_bench(*options); }};
}

} // namespace troupe::cli
