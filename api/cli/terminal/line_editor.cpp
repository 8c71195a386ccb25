#include "api/cli/terminal/line_editor.hpp"

#include "api/cli/terminal/escaped_output.hpp"
#include "api/cli/terminal/word_wrap.hpp"
#include "runtime/tokenizer/unicode.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <stdexcept>
#include <string_view>
#include <utility>

#define HAVE_WCSDUP // the C library has it
#include <histedit.h>
#include <unistd.h>

namespace troupe::cli {

namespace {

constexpr int most_history = 1000;
constexpr wchar_t replacement = 0xFFFD;
constexpr wchar_t drop_key = 0x1c; // Ctrl-backslash, which terminals keep: they send SIGQUIT instead
constexpr wchar_t join_key = 0x1d; // Ctrl-], which means nothing by itself

std::atomic<bool> resized = false, suspended = false, continued = false;

extern "C" void note_resize(int) { resized = true; }
extern "C" void note_suspension(int) { suspended = true; }
extern "C" void note_continuation(int) { continued = true; }

/// Suspends the program, as Ctrl-Z does where nobody catches it, until it is continued.
void suspend() {
  struct sigaction usual = {}, ours = {};
  usual.sa_handler = SIG_DFL;
  sigaction(SIGTSTP, &usual, &ours);
  std::raise(SIGTSTP);
  sigaction(SIGTSTP, &ours, nullptr);
}

/// Catches SIGWINCH, SIGTSTP and SIGCONT while a line is read: libedit must redraw it, and leave the terminal to the
/// shell as that expects it.
class terminal_signals {
public:
  terminal_signals() {
    struct sigaction action = {};
    action.sa_handler = note_resize;
    sigaction(SIGWINCH, &action, &before_[0]);
    action.sa_handler = note_continuation;
    sigaction(SIGCONT, &action, &before_[1]);
    action.sa_handler = note_suspension;
    sigaction(SIGTSTP, &action, &before_[2]);
  }
  ~terminal_signals() {
    sigaction(SIGWINCH, &before_[0], nullptr);
    sigaction(SIGCONT, &before_[1], nullptr);
    sigaction(SIGTSTP, &before_[2], nullptr);
  }
  terminal_signals(const terminal_signals&) = delete;
  terminal_signals& operator=(const terminal_signals&) = delete;

private:
  std::array<struct sigaction, 3> before_ = {};
};

/// wchar_t is UTF-32 here in every locale.
std::string to_utf8(std::wstring_view wide) {
  std::string text;
  for (const wchar_t c : wide)
    tokenization::append_char(text, static_cast<char32_t>(c));
  return text;
}

std::wstring to_wide(std::string_view text) {
  std::wstring wide;
  for (std::size_t at = 0; at < text.size();)
    wide += static_cast<wchar_t>(tokenization::next_char(text, at));
  return wide;
}

bool understands_escapes() {
  const char* name = std::getenv("TERM");
  return name && *name && std::string_view(name) != "dumb";
}

/// Turns a terminal's line breaks into \n, and drops control characters and trailing line breaks.
std::wstring cleaned(std::wstring_view pasted) {
  std::wstring text;
  for (std::size_t i = 0; i < pasted.size(); ++i) {
    const wchar_t c = pasted[i];
    if (c == L'\r' && (i + 1 == pasted.size() || pasted[i + 1] != L'\n'))
      text += L'\n';
    else if ((c >= 0x20 && c != 0x7f) || c == L'\n' || c == L'\t')
      text += c;
  }
  text.erase(text.find_last_not_of(L'\n') + 1);
  return text;
}

/// What makes one emoji of several, or a wide one of a narrow one, where the terminal knows how.
bool joins_emoji(wchar_t c) { return c == 0x200d || c == 0xfe0f; }

/// In which row of a terminal the end of a text is, counted from the text's first.
std::size_t rows_above_end(std::wstring_view text, std::size_t columns) {
  std::size_t row = 0, column = 0;
  for (const wchar_t c : text) {
    const auto width = static_cast<std::size_t>(std::max(wcwidth(c), 0));
    if (column + width > columns || c == L'\n') {
      ++row;
      column = 0;
    }
    column += width;
  }
  return column == columns ? row + 1 : row;
}

} // namespace

struct line_editor::state {
  console& terminal;
  EditLine* line = nullptr;
  HistoryW* history = nullptr;
  const bool escapes = understands_escapes();
  std::string bytes;    // read, not yet decoded
  std::size_t next = 0; // index into bytes
  std::wstring pressed; // keys that nobody typed, ahead of those
  std::wstring joiner;  // what the join key inserts
  std::size_t columns = columns_of(STDOUT_FILENO);
  bool interrupted = false;
  bool going_on = false; // after a backslash
  bool pasting = false;
  bool too_long = false; // the paste exceeds the limit

  state(console& from, const std::vector<std::string>& earlier) : terminal(from) {
    use_utf8_locale(); // libedit takes character widths from it, and shows unknown characters as numbers
    line = el_init("troupe", stdin, terminal_output(), terminal_errors());
    history = history_winit();
    if (!line || !history) {
      release();
      throw std::runtime_error("the line editor cannot be set up");
    }
    HistEventW event;
    history_w(history, &event, H_SETSIZE, most_history);
    history_w(history, &event, H_SETUNIQUE, 1);
    for (const auto& turn : earlier)
      remember(turn);
    el_wset(line, EL_CLIENTDATA, this);
    el_wset(line, EL_EDITOR, L"emacs");
    el_wset(line, EL_SIGNAL, 0);
    el_wset(line, EL_PROMPT, &prompt);
    el_wset(line, EL_HIST, &history_w, history);
    el_wset(line, EL_GETCFN, &read_char);
    el_wset(line, EL_ADDFN, L"troupe-paste", L"Insert what is pasted", &paste);
    el_wset(line, EL_ADDFN, L"troupe-newline", L"Begin another line", &new_line);
    const auto bind = [&](const wchar_t* key, const wchar_t* what) { el_wset(line, EL_BIND, key, what, nullptr); };
    bind(L"\\e[200~", L"troupe-paste");
    bind(L"\\e\\r", L"troupe-newline");
    bind(L"\\e\\n", L"troupe-newline");
    el_wset(line, EL_ADDFN, L"troupe-drop", L"Show that what is typed is dropped", &drop);
    bind(L"\\034", L"troupe-drop");
    el_wset(line, EL_ADDFN, L"troupe-join", L"Insert what joins emoji", &join);
    bind(L"\\035", L"troupe-join");
    bind(L"^R", L"em-inc-search-prev");
    bind(L"\\e[1~", L"ed-move-to-beg");
    bind(L"\\e[4~", L"ed-move-to-end");
    bind(L"\\e[H", L"ed-move-to-beg");
    bind(L"\\e[F", L"ed-move-to-end");
    bind(L"\\e[3~", L"ed-delete-next-char");
    bind(L"\\e[1;5C", L"em-next-word");
    bind(L"\\e[1;5D", L"ed-prev-word");
  }

  ~state() { release(); }
  state(const state&) = delete;
  state& operator=(const state&) = delete;

  void release() {
    if (line)
      el_end(line);
    if (history)
      history_wend(history);
  }

  void remember(const std::string& turn) {
    HistEventW event;
    history_w(history, &event, H_ENTER, to_wide(turn).c_str());
  }

  void pastes_in_brackets(bool on) const {
    if (escapes) {
      std::fputs(on ? "\033[?2004h" : "\033[?2004l", terminal_output());
      std::fflush(terminal_output());
    }
  }

  void follow_signals() {
    if (resized.exchange(false))
      redraw_resized();
    if (suspended.exchange(false)) {
      el_wset(line, EL_PREP_TERM, 0);
      pastes_in_brackets(false);
      suspend();
      continued = true;
    }
    if (continued.exchange(false)) { // the shell has used the terminal since
      el_wset(line, EL_PREP_TERM, 0);
      el_wset(line, EL_PREP_TERM, 1);
      pastes_in_brackets(true);
      el_wset(line, EL_REFRESH);
    }
  }

  /// Some terminals break the rows of a line anew and others do not: what is above the fewer of both is not the line's.
  void redraw_resized() {
    const auto before = std::exchange(columns, columns_of(STDOUT_FILENO));
    el_resize(line);
    if (!escapes || before == 0 || columns == 0)
      return;
    const auto* typed = el_wline(line);
    const auto shown = prompt(line) + std::wstring(typed->buffer, typed->cursor);
    const auto rows = std::min(rows_above_end(shown, before), rows_above_end(shown, columns));
    std::fputs(("\r" + (rows > 0 ? "\033[" + std::to_string(rows) + 'A' : "") + "\033[J").c_str(), terminal_output());
    std::fflush(terminal_output());
    el_wset(line, EL_REFRESH);
  }

  static state& of(EditLine* line) {
    void* self = nullptr;
    el_wget(line, EL_CLIENTDATA, &self);
    return *static_cast<state*>(self);
  }

  static wchar_t* prompt(EditLine* line) {
    static wchar_t first[] = L"> ", further[] = L"  ";
    return of(line).going_on ? further : first;
  }

  static int read_char(EditLine* line, wchar_t* c) { return of(line).next_char(*c); }

  /// 1, 0 at the end of the input, or -1 if interrupted.
  int next_char(wchar_t& c) {
    utf8_state character;
    if (!pressed.empty()) {
      c = pressed.front();
      pressed.erase(0, 1);
      return 1;
    }
    for (std::size_t at = next;;) {
      if (at == bytes.size()) {
        bytes.erase(0, next);
        at -= std::exchange(next, 0);
        follow_signals();
        const auto got = terminal.read_piece(bytes);
        if (got == console::piece::interrupted) {
          interrupted = true;
          if (!has_typed())
            return -1;
          pressed = L'\n'; // which leaves all rows of the line as they are, and goes on below them
          c = drop_key;
          return 1;
        }
        if (got == console::piece::end)
          return 0;
        continue;
      }
      const auto step = character.advance(static_cast<unsigned char>(bytes[at]));
      if (step == utf8_state::step::invalid) {
        next = std::max(at, next + 1); // the invalid byte may begin another character
        c = replacement;
        return 1;
      }
      ++at;
      if (step == utf8_state::step::complete) {
        c = static_cast<wchar_t>(tokenization::next_char(bytes, next));
        if (joins_emoji(c) && !pasting) { // libedit counts the columns of the parts: so the terminal must not join them
          joiner = c;
          c = join_key;
        }
        return 1;
      }
    }
  }

  static unsigned char paste(EditLine* line, wint_t) {
    constexpr std::wstring_view end = L"\033[201~";
    std::wstring text;
    of(line).pasting = true;
    for (wchar_t c = 0; !text.ends_with(end); text += c) {
      of(line).too_long = text.size() > console::longest_line;
      if (of(line).too_long || el_wgetc(line, &c) != 1 || of(line).interrupted)
        return CC_EOF;
    }
    of(line).pasting = false;
    text.resize(text.size() - end.size());
    return insert(line, cleaned(text));
  }

  static unsigned char drop(EditLine* line, wint_t) {
    const auto* typed = el_wline(line);
    el_cursor(line, static_cast<int>(typed->lastchar - typed->cursor));
    return insert(line, L"^C");
  }

  static unsigned char join(EditLine* line, wint_t) { return insert(line, std::exchange(of(line).joiner, {})); }

  static unsigned char new_line(EditLine* line, wint_t) { return insert(line, L"\n"); }

  static unsigned char insert(EditLine* line, const std::wstring& text) {
    return text.empty() || el_winsertstr(line, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  bool has_typed() const {
    const auto* typed = el_wline(line);
    return going_on || (typed && typed->lastchar > typed->buffer);
  }

  console::input read(std::string& text) {
    const terminal_signals noticed;
    std::wstring turn;
    for (going_on = false;;) {
      interrupted = pasting = false;
      pressed.clear();
      if (const auto now = columns_of(STDOUT_FILENO); now != columns) { // since the last line
        columns = now;
        el_resize(line);
      }
      // libedit does this only after showing the prompt; until then the terminal would edit the input.
      el_wset(line, EL_PREP_TERM, 1);
      pastes_in_brackets(true);
      int count = 0;
      const wchar_t* got = el_wgets(line, &count);
      pastes_in_brackets(false);
      if (interrupted && got && !terminal.asked_to_end()) { // something was typed
        turn.clear();
        going_on = false;
        continue;
      }
      if (interrupted)
        return console::input::interrupted;
      if (too_long)
        throw console::line_too_long();
      if (!got || count <= 0)
        return console::input::end;
      std::wstring_view line_typed(got, static_cast<std::size_t>(count));
      if (line_typed.ends_with(L'\n'))
        line_typed.remove_suffix(1);
      going_on = line_typed.ends_with(L'\\');
      if (!going_on) {
        turn += line_typed;
        break;
      }
      turn.append(line_typed.substr(0, line_typed.size() - 1)) += L'\n';
    }
    text = to_utf8(turn);
    if (text.find_first_not_of(" \t\n") != std::string::npos)
      remember(text);
    return console::input::line;
  }
};

line_editor::line_editor(console& terminal, const std::vector<std::string>& earlier)
  : state_(std::make_unique<state>(terminal, earlier)) {}
line_editor::~line_editor() = default;

console::input line_editor::read(std::string& text) { return state_->read(text); }

} // namespace troupe::cli
