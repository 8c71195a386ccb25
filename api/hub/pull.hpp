// Fetches a model from the Hugging Face hub, or a server that speaks its API, into the cache of Hugging Face's
// programs. Plain blocking code on the caller's thread.
#pragma once

#include "api/hub/fetch.hpp"
#include "api/hub/repository.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace troupe::hub {

struct pull_options {
  std::string endpoint; // "https://huggingface.co"
  std::string token;    // empty: none
  std::filesystem::path cache;
  bool verify = false; // compares what is there with its checksum, too
  fetch_limits limits = {};
  int tries = 5; // of a file, without a byte of progress between them
};

/// What the environment says: $HF_ENDPOINT, $HF_TOKEN (or the file that `hf auth login` wrote), and hub_cache(). Throws
/// failure(bad_request | unavailable), the latter where $HF_HUB_OFFLINE forbids the network.
pull_options options_of_environment();

struct pull_progress {
  std::string file;                  // that is being fetched
  std::uint64_t done = 0, total = 0; // bytes of all files, those that were there included
  std::uint64_t received = 0;        // of `done`, over the network by this pull
  std::string news;                  // a line for the user, mostly empty
};

struct pulled_model {
  std::string name; // that `--model` takes
  std::filesystem::path path;
  std::string commit;
  std::size_t files = 0;
  std::uint64_t bytes = 0, received = 0;
};

/// Resumes what an earlier pull began. The version gets its name (refs/main) when all is there and its checksums are
/// right. Throws failure(not_found | unauthorized | unavailable | bad_file | bad_request | unsupported).
pulled_model pull_model(const model_request& what, const pull_options& options,
                        const std::function<void(const pull_progress&)>& show);

} // namespace troupe::hub
