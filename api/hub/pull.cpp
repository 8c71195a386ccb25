#include "api/hub/pull.hpp"

#include "api/hub/digest.hpp"
#include "api/hub/store.hpp"
#include "runtime/import/folder_files.hpp"
#include "runtime/import/hub_cache.hpp"
#include "runtime/import/model_names.hpp"
#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/text/byte_size.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <thread>

namespace troupe::hub {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_listing = std::size_t(64) << 20;
constexpr std::uint64_t spare_space = std::uint64_t(16) << 20; // of a disk, for others
constexpr auto first_pause = std::chrono::milliseconds(250), longest_pause = std::chrono::milliseconds(8000),
               longest_asked_pause = std::chrono::milliseconds(120'000);

std::optional<std::uint64_t> whole_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty() ? std::optional(number)
                                                                                   : std::nullopt;
}

/// The server asks to try again later.
class later : public connection_failure {
public:
  later(const std::string& what, std::chrono::milliseconds pause) : connection_failure(what), asked(pause) {}
  const std::chrono::milliseconds asked; // 0: not said
};

/// Calls `attempt` until it succeeds, or until so many calls in a row made no progress. `progress`: a number that
/// grows.
template <class F, class P>
void with_retries(int tries, const F& attempt, const P& progress, const std::function<void(const std::string&)>& tell) {
  auto pause = first_pause;
  for (int failed = 0;;) {
    const auto before = progress();
    auto wait = pause;
    try {
      attempt();
      return;
    } catch (const later& e) {
      wait = std::max(wait, std::min<std::chrono::milliseconds>(e.asked, longest_asked_pause));
      if (++failed >= tries)
        throw failure(errc::unavailable, std::string(e.what()) + "; what is there is kept for the next try");
      tell(e.what());
    } catch (const connection_failure& e) {
      if (progress() > before) {
        failed = 0;
        pause = wait = first_pause;
      }
      if (++failed >= tries)
        throw failure(errc::unavailable, std::string(e.what()) + "; what is there is kept for the next try");
      tell(e.what());
    }
    std::this_thread::sleep_for(wait);
    pause = std::min<std::chrono::milliseconds>(2 * pause, longest_pause);
  }
}

/// Throws for whatever is not a success.
void check_status(const response_head& head, const std::string& id, const pull_options& options) {
  if (head.status == 200 || head.status == 206)
    return;
  const auto code = head.field("x-error-code");
  const auto page = options.endpoint + "/" + id;
  const std::string with_token = options.token.empty() ? "set HF_TOKEN to a token of an account that may read it"
                                                       : "the account of the token in use may not read it";
  if (code == "GatedRepo" || head.status == 403)
    throw failure(errc::unauthorized,
                  id + " is gated: its terms are accepted at " + page + ", and " +
                    (options.token.empty() ? with_token : "the token in use must be of an account that did"));
  if (code == "RevisionNotFound")
    throw failure(errc::not_found, id + ": there is no such version of it on " + options.endpoint);
  if (code == "EntryNotFound")
    throw failure(errc::not_found, head.address + ": the hub lists this file, but does not have it");
  if (head.status == 401 || head.status == 404 || code == "RepoNotFound")
    throw failure(head.status == 404 ? errc::not_found : errc::unauthorized,
                  id + ": there is no such model on " + options.endpoint + ", or it is private: " + with_token);
  const auto said = head.address + ": status " + std::to_string(head.status);
  if (head.status == 429 || head.status >= 500 || head.status == 408)
    throw later(
      said, std::chrono::seconds(std::min<std::uint64_t>(whole_number(head.field("retry-after")).value_or(0), 3600)));
  throw failure(errc::unavailable, said);
}

/// An entity tag without quotes.
std::string tag_of(std::string_view field) {
  if (field.starts_with("W/"))
    field.remove_prefix(2);
  if (field.size() >= 2 && field.front() == '"' && field.back() == '"')
    field = field.substr(1, field.size() - 2);
  return std::string(field);
}

/// "bytes 5-9/10" begins at 5 and is of 10.
bool is_range_of(std::string_view field, std::uint64_t from, std::uint64_t size) {
  return field.starts_with("bytes " + std::to_string(from) + "-") && field.ends_with("/" + std::to_string(size));
}

/// Nothing for files that have no checksum that anybody can compute.
std::optional<digest> digest_for(const remote_file& file) {
  if (file.checksum.find_first_not_of("0123456789abcdef") != std::string::npos)
    return std::nullopt;
  if (file.checksum.size() == 64)
    return digest();
  return file.checksum.size() == 40 ? std::optional<digest>(digest(*file.size)) : std::nullopt;
}

class puller {
public:
  puller(const model_request& what, const pull_options& options, const std::function<void(const pull_progress&)>& show)
    : what_(what), options_(options), show_(show) {}

  pulled_model run() {
    const auto listed = list();
    auto files = select_files(listed, what_.id, what_.format);
    const repository_store store(options_.cache, what_.id, listed.commit);
    add_modules(files, listed, store);
    for (auto& file : files)
      complete(file, listed.commit);
    for (const auto& file : files)
      progress_.total += *file.size;
    check_space(files, store);
    for (const auto& file : files) {
      const auto before = progress_.done;
      obtain(file, listed.commit, store);
      store.link(file.path, file.checksum);
      progress_.done = before + *file.size;
      show_(progress_);
    }
    // Other files of this version that are there, such as those of another format that an earlier version had, too.
    for (const auto& file : listed.files)
      if (file.size && is_cache_name(file.checksum) && is_complete(file, store))
        store.link(file.path, file.checksum);
    store.name_version(what_.revision);
    pulled_model result{what_.id, store.version(), listed.commit, files.size(), progress_.total, progress_.received};
    if (is_gguf_name(files.front().path)) {
      result.path = store.version() / files.front().path;
      result.name += ":" + format_in_name(files.front().path).value_or(stem_of_gguf(files.front().path));
    }
    if (what_.revision != "main")
      result.name = result.path.string();
    return result;
  }

private:
  void tell(const std::string& news) {
    progress_.news = news;
    show_(progress_);
    progress_.news.clear();
  }

  repository list() {
    const auto address = options_.endpoint + "/api/models/" + what_.id + "/revision/" + escaped_revision() +
      "?blobs=true";
    std::string answer;
    with_retries(
      3,
      [&] {
        answer.clear();
        const response_sink to{[&](const response_head& head) {
                                 check_status(head, what_.id, options_);
                                 return true;
                               },
                               [&](std::string_view bytes) {
                                 if (answer.size() + bytes.size() > longest_listing)
                                   throw failure(errc::unavailable,
                                                 options_.endpoint + ": the list of files is too long");
                                 answer += bytes;
                               }};
        fetch({.address = address, .token = options_.token}, to, options_.limits);
      },
      [] { return 0; }, [&](const std::string& why) { tell(why + "; trying again"); });
    return parse_repository(answer, options_.endpoint + "'s answer about " + what_.id);
  }

  /// The files of a sentence encoder's modules, which only their list names.
  void add_modules(std::vector<remote_file>& to, const repository& listed, const repository_store& store) {
    const auto list = std::ranges::find(to, modules_file, &remote_file::path);
    if (list == to.end())
      return;
    complete(*list, listed.commit);
    obtain(*list, listed.commit, store);
    const auto name = what_.id + "/" + list->path;
    const auto text = read_file(store.blob(list->checksum), files::configuration);
    for (const auto& path : module_files(json::document::parse(text, name)))
      if (const auto found = std::ranges::find(listed.files, path, &remote_file::path);
          found != listed.files.end() && std::ranges::find(to, path, &remote_file::path) == to.end())
        to.push_back(*found);
  }

  /// A slash of a name is no separator of the path here.
  std::string escaped_revision() const {
    auto text = escaped_path(what_.revision);
    for (std::size_t at = 0; (at = text.find('/', at)) != text.npos;)
      text.replace(at, 1, "%2F");
    return text;
  }

  std::string address_of(const remote_file& file, const std::string& commit) const {
    return options_.endpoint + "/" + what_.id + "/resolve/" + commit + "/" + escaped_path(file.path);
  }

  /// Asks for size and checksum where the listing lacks them: some mirrors' do.
  void complete(remote_file& file, const std::string& commit) {
    if (file.size && !file.checksum.empty())
      return;
    response_head seen;
    with_retries(
      3,
      [&] {
        fetch({.address = address_of(file, commit), .head = true, .token = options_.token},
              {[&](const response_head& head) {
                 check_status(head, what_.id, options_);
                 seen = head;
                 return false;
               },
               {}},
              options_.limits);
      },
      [] { return 0; }, [&](const std::string& why) { tell(why + "; trying again"); });
    const auto linked = seen.field("x-linked-etag"), size = seen.field("x-linked-size");
    file.checksum = tag_of(linked.empty() ? seen.field("etag") : linked);
    file.size = whole_number(size.empty() ? seen.field("content-length") : size);
    if (!is_cache_name(file.checksum) || !file.size)
      throw failure(errc::unavailable, address_of(file, commit) + ": the server tells neither checksum nor size");
  }

  /// What is there in full, by its size.
  static bool is_complete(const remote_file& file, const repository_store& store) {
    std::error_code error;
    const auto bytes = fs::file_size(store.blob(file.checksum), error);
    return !error && bytes == *file.size;
  }

  void check_space(const std::vector<remote_file>& files, const repository_store& store) const {
    std::uint64_t needed = spare_space;
    for (const auto& file : files)
      if (!is_complete(file, store)) {
        std::error_code error;
        const auto partial = fs::file_size(store.blob(file.checksum + ".troupe.incomplete"), error);
        needed += *file.size - std::min(*file.size, error ? 0 : partial);
      }
    if (const auto space = store.space(); needed > spare_space && needed > space)
      throw failure(errc::bad_file,
                    what_.id + " needs " + to_size(needed) + " more, but only " + to_size(space) + " are free in " +
                      options_.cache.string());
  }

  static bool has_right_checksum(const remote_file& file, const repository_store& store) {
    auto sum = digest_for(file);
    std::ifstream blob(store.blob(file.checksum), std::ios::binary);
    std::vector<char> piece(std::size_t(1) << 20);
    while (sum && blob) {
      blob.read(piece.data(), static_cast<std::streamsize>(piece.size()));
      sum->add({piece.data(), static_cast<std::size_t>(blob.gcount())});
    }
    return !sum || sum->finish() == file.checksum;
  }

  /// Puts the blob of `file` into the cache, unless it is there.
  void obtain(const remote_file& file, const std::string& commit, const repository_store& store) {
    progress_.file = file.path;
    show_(progress_);
    const auto held = store.lock(file.checksum, [&] { tell("waiting for another program that fetches " + file.path); });
    if (is_complete(file, store)) {
      if (!options_.verify || has_right_checksum(file, store))
        return;
      tell(file.path + ": what is there has another checksum, and is fetched again");
    }
    const auto partial = store.begin(file.checksum);
    const auto before = progress_.done;
    if (partial->size() > *file.size)
      partial->clear();
    bool resumed = partial->size() > 0;
    auto sum = digest_for(file);
    const auto count_again = [&] {
      sum = digest_for(file);
      partial->read([&](std::string_view bytes) {
        if (sum)
          sum->add(bytes);
      });
      progress_.done = before + partial->size();
    };
    count_again();
    auto furthest = partial->size();
    for (;; resumed = false) {
      with_retries(
        options_.tries,
        [&] {
          try {
            receive(file, commit, *partial, sum, before, count_again);
          } catch (const connection_failure&) {
            furthest = std::max(furthest, partial->size()); // may begin anew where the server knows no ranges
            throw;
          }
        },
        [&] { return furthest; }, [&](const std::string& why) { tell(why + "; trying again"); });
      if (!sum || sum->finish() == file.checksum)
        break;
      std::string beginning;
      partial->read([&](std::string_view bytes) {
        if (beginning.empty())
          beginning = bytes.substr(0, 64);
      });
      partial->clear();
      if (!resumed)
        throw failure(errc::bad_file,
                      address_of(file, commit) + ": what was received does not have the checksum that the hub states" +
                        (beginning.find("<html") != beginning.npos || beginning.find("<!") == 0
                           ? "; it is a web page, as a proxy on the way may send"
                           : ""));
      tell(file.path + ": the part that was there was damaged; fetching it again");
      count_again();
    }
    partial->commit();
  }

  /// Fetches the rest of `file`. Throws connection_failure.
  template <class F>
  void receive(const remote_file& file, const std::string& commit, partial_blob& partial, std::optional<digest>& sum,
               std::uint64_t before, const F& count_again) {
    if (partial.size() == *file.size)
      return;
    const auto from = partial.size();
    const request ask{.address = address_of(file, commit),
                      .token = options_.token,
                      .from = from > 0 ? std::optional(from) : std::nullopt};
    bool again = false;
    fetch(ask,
          {[&](const response_head& head) {
             if (head.status == 416 && from > 0) {
               again = true;
               return false;
             }
             check_status(head, what_.id, options_);
             const auto range = head.field("content-range");
             const bool is_part = head.status == 206 || (from > 0 && !range.empty()); // some say 200, of a part
             if (is_part && !is_range_of(range, from, *file.size)) {
               again = from > 0;
               if (!again)
                 throw failure(errc::unavailable,
                               head.address + ": the server sends another part than it was asked for");
               return false;
             }
             if (!is_part && from > 0) { // knows no ranges
               partial.clear();
               count_again();
             }
             return true;
           },
           [&](std::string_view bytes) {
             if (bytes.size() > *file.size - partial.size())
               throw failure(errc::unavailable, ask.address + ": the server sends more than the hub says");
             partial.append(bytes);
             if (sum)
               sum->add(bytes);
             progress_.received += bytes.size();
             progress_.done = before + partial.size();
             show_(progress_);
           }},
          options_.limits);
    if (again) {
      partial.clear();
      count_again();
      throw connection_failure(ask.address + ": the server does not go on from where it was broken off");
    }
    if (partial.size() < *file.size)
      throw connection_failure(ask.address + ": the server sent less than the hub says");
  }

  const model_request& what_;
  const pull_options& options_;
  const std::function<void(const pull_progress&)>& show_;
  pull_progress progress_;
};

} // namespace

pulled_model pull_model(const model_request& what, const pull_options& options,
                        const std::function<void(const pull_progress&)>& show) {
  return puller(what, options, show).run();
}

} // namespace troupe::hub
