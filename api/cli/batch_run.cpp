#include "api/cli/batch_run.hpp"

#include "api/cli/terminal/console.hpp"
#include "api/openai/openai_response.hpp"
#include "api/openai/responses/response_store.hpp"
#include "api/server/endpoint.hpp"

#include <cerrno>
#include <fstream>
#include <map>
#include <mutex>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe::cli {

namespace {

constexpr std::size_t longest_batch_line = 64 << 20;
/// Answers that wait for an earlier one.
constexpr std::size_t most_lines_ahead = 4096, most_bytes_ahead = 256 << 20;

/// Reads the lines that are not empty.
class line_reader {
public:
  explicit line_reader(const std::filesystem::path& file) : file_(file), in_(file, std::ios::binary) {
    if (!in_)
      throw failure(errc::not_found, file.string() + " cannot be read");
  }

  /// Whether there was one. `number` counts all lines of the file.
  bool next(std::string& line) {
    while (read(line)) {
      ++number_;
      if (line.find_first_not_of(" \t") != line.npos)
        return true;
    }
    return false;
  }
  std::size_t number() const { return number_; }
  /// Whether the last line ended with a line break.
  bool was_whole() const { return whole_; }
  std::uintmax_t whole_bytes() const { return whole_bytes_; } // up to the last line break

private:
  bool read(std::string& line) {
    line.clear();
    whole_ = false;
    for (int c; (c = in_.get()) != std::ifstream::traits_type::eof();) {
      ++bytes_;
      if (c == '\n') {
        whole_ = true;
        whole_bytes_ = bytes_;
        break;
      }
      line.push_back(static_cast<char>(c));
      if (line.size() > longest_batch_line)
        throw failure(errc::bad_file,
                      file_.string() + ": line " + std::to_string(number_ + 1) + " has more than " +
                        std::to_string(longest_batch_line >> 20) + " MiB");
    }
    if (in_.bad())
      throw failure(errc::bad_file, file_.string() + " cannot be read");
    if (line.ends_with('\r'))
      line.pop_back();
    return whole_ || !line.empty();
  }

  const std::filesystem::path file_;
  std::ifstream in_;
  std::size_t number_ = 0;
  std::uintmax_t bytes_ = 0, whole_bytes_ = 0;
  bool whole_ = false;
};

class batch_runner {
public:
  batch_runner(const batch_files& files, const batch_state& from, service& models, std::size_t most, console& terminal,
               const std::function<void(std::size_t)>& tell)
    : in_(files.in),
      out_(*from.out),
      models_(models),
      most_(most),
      terminal_(terminal),
      tell_(tell),
      next_(from.answered),
      written_(from.answered) {
    std::string line;
    for (std::size_t i = 0; i < from.answered && in_.next(line); ++i)
      seen_.insert(custom_id_of(line));
  }

  batch_outcome run() {
    for (;;) {
      submit_more();
      write_finished();
      if (running_.empty() && finished_.empty() && at_end_)
        return outcome_;
      if (running_.empty())
        continue;
      if (!terminal_.next_event()) {
        outcome_.interrupted = true;
        return outcome_;
      }
      take_events();
    }
  }

private:
  struct open_line {
    std::string custom_id;
    generation_job job;
    std::vector<request_handle> handles;
    std::size_t open = 0, sequences = 0;
    std::optional<error> failed;
  };
  struct arrival {
    std::size_t line = 0, prompt = 0;
    event what;
  };
  /// Shared with the sinks, which may outlive the run.
  struct queue {
    std::mutex lock;
    std::vector<arrival> items;
  };

  void submit_more() {
    std::string line;
    while (!at_end_ && (sequences_ < most_ || running_.empty()) && next_ - written_ < most_lines_ahead &&
           bytes_ahead_ < most_bytes_ahead) {
      if (!in_.next(line)) {
        at_end_ = true;
        return;
      }
      const auto number = next_++;
      std::string custom_id;
      try {
        begin(number, line, custom_id);
      } catch (const failure& f) {
        end(number,
            custom_id.empty() ? invalid_line(custom_id_of(line), f.what_failed())
                              : failed_line(custom_id, f.what_failed()),
            true);
      }
    }
  }

  void begin(std::size_t number, std::string_view text, std::string& custom_id) {
    auto request = parse_batch_line(text);
    if (!seen_.insert(request.custom_id).second)
      refuse_field("custom_id", "is that of an earlier line");
    const auto found = find_endpoint("POST", request.url);
    const auto* to = std::get_if<found_endpoint>(&found);
    const auto* makes = to ? std::get_if<generated>(&to->row->what) : nullptr;
    if (!makes)
      refuse_field("url", "must be that of an endpoint that answers with a model, not \"" + request.url + '"');
    custom_id = request.custom_id;
    const field_reader body(request.body);
    if (body.boolean("stream").value_or(false))
      body.refuse("stream", "must be false in a batch");
    auto model = models_.find(body.text("model").value_or(""));
    if (!model)
      model = models_.find({}); // the parser refuses the name
    open_line one{custom_id, makes->parsed_by({body, std::move(model), stored_, 0, {}}), {}, 0, 0, {}};
    if (one.job.prompts.empty() || one.job.stream)
      throw failure(errc::unsupported, "this request cannot be answered in a batch", "body");
    for (const auto& prompt : one.job.prompts)
      one.sequences += static_cast<std::size_t>(prompt.sampling.width());
    one.open = one.job.prompts.size();
    sequences_ += one.sequences;
    auto prompts = std::move(one.job.prompts);
    auto& open = running_.emplace(number, std::move(one)).first->second;
    for (std::size_t i = 0; i < prompts.size(); ++i)
      open.handles.push_back(
        models_.submit(std::move(prompts[i]), [queue = arrivals_, number, i, &terminal = terminal_](event e) {
          bool first = false;
          {
            const std::scoped_lock hold(queue->lock);
            first = queue->items.empty();
            queue->items.push_back({number, i, std::move(e)});
          }
          if (first)
            terminal.post(done_event{}); // wakes it
        }));
  }

  void take_events() {
    std::vector<arrival> items;
    {
      const std::scoped_lock hold(arrivals_->lock);
      items.swap(arrivals_->items);
    }
    for (auto& [number, prompt, what] : items) {
      const auto found = running_.find(number);
      if (found == running_.end())
        continue;
      auto& one = found->second;
      if (const auto* token = std::get_if<token_event>(&what)) {
        if (!one.failed)
          one.job.writer->take(prompt, *token);
        continue;
      }
      --one.open;
      if (const auto* done = std::get_if<done_event>(&what)) {
        if (!one.failed)
          one.job.writer->take(prompt, *done);
      } else if (!one.failed) {
        one.failed = std::get<error>(what);
        for (auto& handle : one.handles)
          handle.cancel();
      }
      if (one.open > 0)
        continue;
      sequences_ -= one.sequences;
      const bool wrong = one.failed.has_value();
      end(number,
          wrong ? failed_line(one.custom_id, *one.failed) : answered_line(one.custom_id, 200, one.job.writer->body()),
          wrong);
      running_.erase(number);
    }
  }

  void end(std::size_t number, std::string line, bool wrong) {
    bytes_ahead_ += line.size();
    (wrong ? outcome_.failed : outcome_.answered) += 1;
    finished_.emplace(number, std::move(line));
  }

  void write_finished() {
    std::string lines;
    for (auto first = finished_.begin(); first != finished_.end() && first->first == written_;) {
      lines += first->second;
      bytes_ahead_ -= first->second.size();
      first = finished_.erase(first);
      ++written_;
    }
    if (lines.empty())
      return;
    out_.write(lines);
    tell_(written_);
  }

  line_reader in_;
  const batch_output& out_;
  service& models_;
  const std::size_t most_;
  console& terminal_;
  const std::function<void(std::size_t)>& tell_;
  response_store stored_{0, 0};
  std::shared_ptr<queue> arrivals_ = std::make_shared<queue>();
  std::unordered_set<std::string> seen_;        // ids
  std::map<std::size_t, open_line> running_;    // by line
  std::map<std::size_t, std::string> finished_; // that wait for an earlier one
  std::size_t next_, written_, sequences_ = 0, bytes_ahead_ = 0;
  bool at_end_ = false;
  batch_outcome outcome_;
};

} // namespace

batch_output::batch_output(const std::filesystem::path& file) : file_(file) {
  for (struct stat s{}; s.st_nlink == 0;) { // else another process has removed it meanwhile
    opened_ = descriptor(::open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666));
    if (!opened_)
      fail(errno);
    if (!try_lock(opened_))
      errno == EWOULDBLOCK ? throw failure(errc::bad_file, file.string() + ": another process is writing it")
                           : fail(errno);
    if (fstat(opened_.get(), &s) != 0)
      fail(errno);
    if (!S_ISREG(s.st_mode))
      throw failure(errc::bad_request, file.string() + ": is there, and not a regular file");
  }
}

batch_output::~batch_output() {
  if (struct stat s{}; fstat(opened_.get(), &s) == 0 && s.st_size == 0)
    unlink(file_.c_str());
}

void batch_output::keep(std::uintmax_t bytes) const {
  if (ftruncate(opened_.get(), static_cast<off_t>(bytes)) != 0)
    fail(errno);
}

void batch_output::write(std::string_view text) const {
  if (!write_whole(opened_, text.data(), text.size()))
    fail(errno);
}

void batch_output::fail(int error) const {
  throw failure(errc::bad_file, file_.string() + ": cannot be written: " + std::generic_category().message(error));
}

batch_state prepare_batch(const batch_files& files) {
  batch_state result;
  std::string line, answer;
  std::error_code unknown; // of which its reader says more
  if (const auto in = std::filesystem::status(files.in, unknown); exists(in) && !is_regular_file(in))
    throw failure(errc::bad_request, files.in.string() + ": not a regular file: requests are read twice");
  line_reader in(files.in);
  result.out = std::make_unique<const batch_output>(files.out);
  if (files.overwrite) {
    result.out->keep(0);
  } else {
    line_reader out(files.out);
    while (out.next(answer)) {
      if (!may_be_answer(answer))
        throw failure(errc::bad_request,
                      files.out.string() + ": line " + std::to_string(out.number()) +
                        " is no answer that this command wrote, so the file is left as it is; name another with "
                        "--out, or replace it with --overwrite");
      if (!out.was_whole())
        break;
      if (!in.next(line) || custom_id_of(line) != custom_id_of(answer))
        throw failure(errc::bad_request,
                      files.out.string() + ": line " + std::to_string(out.number()) +
                        " answers another request than those of " + files.in.string() +
                        "; name another file with --out, or replace it with --overwrite");
      ++result.answered;
    }
    result.out->keep(out.whole_bytes()); // a run ended within a line
  }
  result.requests = result.answered;
  while (in.next(line))
    ++result.requests;
  return result;
}

batch_outcome run_batch(const batch_files& files, const batch_state& from, service& models, std::size_t most,
                        console& terminal, const std::function<void(std::size_t)>& tell) {
  return batch_runner(files, from, models, most, terminal, tell).run();
}

} // namespace troupe::cli
