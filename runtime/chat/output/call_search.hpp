// Finds calls in the text of an answer by the texts that begin them, and lets a call_attempt read each one. If an
// attempt fails, its text is content, and the search goes on behind its first byte. What begins another call behind one,
// and is cut, is none. Single-threaded; belongs to one parser.
#pragma once

#include "runtime/chat/output/call_format.hpp"
#include "runtime/chat/output/text_search.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The longest function name, with what formats write around it.
inline constexpr std::size_t most_name_bytes = 256;

enum class reading : std::uint8_t {
  more,
  settled, // more; what was read so far is part of calls, whatever follows
  done,    // with this byte
  failed,  // no call, or none anymore; with this byte
};

/// Where calls end with an expected text.
inline reading reading_of(expected_text::match how) {
  return how == expected_text::match::none ? reading::failed
    : how == expected_text::match::found   ? reading::done
                                           : reading::more;
}

/// Reads one call, or a section of them, behind the text that begins it. It begins and ends calls in the sink.
class call_attempt {
public:
  virtual ~call_attempt() = default;
  virtual reading take(char c) = 0;
  /// The text ends or fails within a call: yields what is held back of its arguments.
  virtual void abandon() {}
};

class call_search : public call_reader {
public:
  /// Makes what reads behind a marker; behind nothing at the answer's start.
  using attempt_maker = std::function<std::unique_ptr<call_attempt>(std::string_view marker)>;
  /// `at_start`: calls may begin at the answer's start without a marker.
  call_search(delta_sink& out, std::vector<std::string_view> markers, attempt_maker make, bool at_start = false);

  void take(char c) override;
  void finish() override;

private:
  std::string step(char c);
  std::string fail();
  void begin(std::string_view marker);
  void run(std::string text);

  delta_sink& out_;
  text_search search_;
  attempt_maker make_;
  std::unique_ptr<call_attempt> attempt_;
  std::string_view marker_;
  std::string unsettled_;      // what has been read since the marker or the last that was settled, outside of calls
  bool behind_marker_ = false; // `unsettled_` follows `marker_`
  bool at_start_;
};

} // namespace troupe
