#include "runtime/guide/schema/formats.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace troupe::guides {

namespace {

// RFC 3339 has a year 0, which Python's and other libraries' dates have not; so there is none.
#define TROUPE_YEAR_MONTH_DAY                                                                                          \
  "(?:(?:[1-9]\\d{3}|0[1-9]\\d{2}|00[1-9]\\d|000[1-9])-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|"                \
  "(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))|"                                                    \
  "(?:\\d{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)"
// A leap second is allowed where it can be without arithmetic: at midnight UTC.
#define TROUPE_CLOCK                                                                                                   \
  "(?:(?:(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d+)?(?:[Zz]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d))|"                   \
  "23:59:60(?:\\.\\d+)?(?:[Zz]|[+-]00:00))"
#define TROUPE_LABEL "(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)"
#define TROUPE_BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define TROUPE_IPV4 "(?:" TROUPE_BYTE "(?:\\." TROUPE_BYTE "){3})"
#define TROUPE_H16 "[0-9A-Fa-f]{1,4}"
#define TROUPE_LS32 "(?:" TROUPE_H16 ":" TROUPE_H16 "|" TROUPE_IPV4 ")"
#define TROUPE_IPV6                                                                                                    \
  "(?:(?:" TROUPE_H16 ":){6}" TROUPE_LS32 "|::(?:" TROUPE_H16 ":){5}" TROUPE_LS32 "|(?:" TROUPE_H16                    \
  ")?::(?:" TROUPE_H16 ":){4}" TROUPE_LS32 "|(?:(?:" TROUPE_H16 ":){0,1}" TROUPE_H16 ")?::(?:" TROUPE_H16              \
  ":){3}" TROUPE_LS32 "|(?:(?:" TROUPE_H16 ":){0,2}" TROUPE_H16 ")?::(?:" TROUPE_H16 ":){2}" TROUPE_LS32               \
  "|(?:(?:" TROUPE_H16 ":){0,3}" TROUPE_H16 ")?::" TROUPE_H16 ":" TROUPE_LS32 "|(?:(?:" TROUPE_H16                     \
  ":){0,4}" TROUPE_H16 ")?::" TROUPE_LS32 "|(?:(?:" TROUPE_H16 ":){0,5}" TROUPE_H16 ")?::" TROUPE_H16                  \
  "|(?:(?:" TROUPE_H16 ":){0,6}" TROUPE_H16 ")?::)"
// With U: what an IRI has beside the characters of a URI (RFC 3987, without what is private).
#define TROUPE_UCS                                                                                                     \
  "\u00A0-\uD7FF\uF900-\uFDCF\uFDF0-\uFFEF\U00010000-\U0001FFFD\U00020000-\U0002FFFD\U00030000-\U0003FFFD"
#define TROUPE_PCT "%[0-9A-Fa-f]{2}"
#define TROUPE_PCHAR(U) "(?:[A-Za-z0-9._~!$&'()*+,;=:@" U "-]|" TROUPE_PCT ")"
#define TROUPE_AUTHORITY(U)                                                                                            \
  "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:" U "-]|" TROUPE_PCT ")*@)?(?:\\[(?:" TROUPE_IPV6                                    \
  "|[vV][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]|(?:[A-Za-z0-9._~!$&'()*+,;=" U "-]|" TROUPE_PCT                \
  ")*)(?::\\d*)?"
#define TROUPE_TAIL(U) "(?:\\?(?:" TROUPE_PCHAR(U) "|[/?])*)?(?:#(?:" TROUPE_PCHAR(U) "|[/?])*)?"
#define TROUPE_SLASHES(U) "(?:/" TROUPE_PCHAR(U) "*)*"
#define TROUPE_URI(U)                                                                                                  \
  "[A-Za-z][A-Za-z0-9+.-]*:(?://" TROUPE_AUTHORITY(U) TROUPE_SLASHES(U) "|/(?:" TROUPE_PCHAR(U) "+" TROUPE_SLASHES(    \
    U) ")?|" TROUPE_PCHAR(U) "+" TROUPE_SLASHES(U) "|)" TROUPE_TAIL(U)
#define TROUPE_RELATIVE(U)                                                                                             \
  "(?://" TROUPE_AUTHORITY(U) TROUPE_SLASHES(U) "|/(?:" TROUPE_PCHAR(U) "+" TROUPE_SLASHES(                            \
    U) ")?|(?:[A-Za-z0-9._~!$&'()*+,;=@" U "-]|" TROUPE_PCT ")+" TROUPE_SLASHES(U) "|)" TROUPE_TAIL(U)
#define TROUPE_ATEXT(U) "[A-Za-z0-9!#$%&'*+/=?^_`{|}~" U "-]+"
// Lower case of scripts without contextual rules; short enough for any length as Punycode.
#define TROUPE_IDN                                                                                                     \
  "(?:[A-Za-z0-9]{1,20}(?:-[A-Za-z0-9]{1,20}){0,2}|"                                                                   \
  "[a-z0-9\u00DF-\u00F6\u00F8-\u00FF\u03AC-\u03CE\u0430-\u045F\u3041-\u3094\u30A1-\u30FA\u4E00-\u9FA5\uAC00-\uD7A3]"   \
  "{1,13})"
#define TROUPE_NAME "(?:[A-Za-z0-9_]|" TROUPE_PCT ")"
#define TROUPE_VARIABLE TROUPE_NAME "(?:\\.?" TROUPE_NAME ")*(?::[1-9]\\d{0,3}|\\*)?"

constexpr auto duration = "P(?:(?:\\d+D|\\d+M(?:\\d+D)?|\\d+Y(?:\\d+M(?:\\d+D)?)?)"
                          "(?:T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S))?|"
                          "T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S)|\\d+W)";

constexpr std::array<std::pair<std::string_view, std::string_view>, 18> formats{{
  {"date-time", TROUPE_YEAR_MONTH_DAY "[Tt]" TROUPE_CLOCK},
  {"date", TROUPE_YEAR_MONTH_DAY},
  {"time", TROUPE_CLOCK},
  {"duration", duration},
  {"email", TROUPE_ATEXT("") "(?:\\." TROUPE_ATEXT("") ")*@" TROUPE_LABEL "(?:\\." TROUPE_LABEL ")*"},
  {"idn-email",
   TROUPE_ATEXT(TROUPE_UCS) "(?:\\." TROUPE_ATEXT(TROUPE_UCS) ")*@(?:" TROUPE_LABEL "(?:\\." TROUPE_LABEL
                                                              ")*|" TROUPE_IDN "(?:\\." TROUPE_IDN ")*)"},
  {"hostname", "(?=.{1,253}$)" TROUPE_LABEL "(?:\\." TROUPE_LABEL ")*"},
  {"ipv4", TROUPE_IPV4},
  {"ipv6", TROUPE_IPV6},
  {"idn-hostname", "(?=.{1,60}$)" TROUPE_IDN "(?:\\." TROUPE_IDN ")*"},
  {"uri", TROUPE_URI("")},
  {"uri-reference", TROUPE_URI("") "|" TROUPE_RELATIVE("")},
  {"iri", TROUPE_URI(TROUPE_UCS)},
  {"iri-reference", TROUPE_URI(TROUPE_UCS) "|" TROUPE_RELATIVE(TROUPE_UCS)},
  {"uri-template",
   "(?:[!#$&()*+,./0-9:;=?@A-Z\\[\\]_a-z~" TROUPE_UCS "-]|" TROUPE_PCT "|\\{[+#./;?&]?" TROUPE_VARIABLE
   "(?:," TROUPE_VARIABLE ")*\\})*"},
  {"uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"},
  {"json-pointer", "(?:/(?:[^~/]|~[01])*)*"},
  {"relative-json-pointer", "(?:0|[1-9]\\d*)(?:#|(?:/(?:[^~/]|~[01])*)*)"},
}};

/// Regular expressions that ECMAScript (also with its flag `u`) and Python read alike, with parentheses four deep.
std::string regular_expressions() {
  const std::string escape = "\\\\(?:[dDwWsStnrfv\\\\^$.*+?()\\[\\]{}|/]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})";
  auto character = "(?:[^\\\\\\[\\]^-]|\\\\-|" + escape; // in brackets; with ranges in order
  for (const auto* ends : {"09", "az", "AZ"})
    for (char c = ends[0]; c <= ends[1]; ++c)
      character += std::string("|") + c + "-[" + c + "-" + ends[1] + "]";
  character += ")";
  std::string counts = "\\d{1,3},?|\\d,[1-9]\\d{1,2}|\\d{2},[1-9]\\d{2}"; // bounds in order
  for (char c = '0'; c <= '9'; ++c) {
    counts += std::string("|") + c + ",[" + c + "-9]";
    if (c > '0' && c < '9')
      counts += std::string("|") + c + "\\d,[" + static_cast<char>(c + 1) + "-9]\\d";
  }
  const auto brackets = "\\[\\^?(?:-?" + character + "+-?|-)\\]";
  const auto count = "(?:(?:[*+?]|\\{(?:" + counts + ")\\})[?]?)?";
  const auto plain = "(?:[^\\\\^$*+?()\\[\\]{}|]|" + escape + "|" + brackets + ")" + count + "|[\\^$]|\\\\[bB]";
  auto all = "(?:" + plain + "|\\|)*";
  for (int depth = 0; depth < 4; ++depth)
    all = "(?:" + plain + "|\\||\\((?:(?:\\?:)?" + all + "\\)" + count + "|\\?[=!]" + all + "\\)))*";
  return all;
}

} // namespace

std::optional<std::string_view> format_pattern(std::string_view name) {
  if (name == "regex") {
    static const auto pattern = regular_expressions();
    return pattern;
  }
  const auto found = std::ranges::find(formats, name, [](const auto& f) { return f.first; });
  if (found == formats.end())
    return {};
  return found->second;
}

bool format_has_more(std::string_view name) {
  constexpr std::array<std::string_view, 6> some{"idn-email",     "idn-hostname", "iri",
                                                 "iri-reference", "uri-template", "regex"};
  return std::ranges::find(some, name) != some.end();
}

} // namespace troupe::guides
