#include "runtime/guide/schema/formats.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace troupe::guides {

namespace {

#define TROUPE_YEAR_MONTH_DAY                                                                                          \
  "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2["  \
  "0-8]))|"                                                                                                            \
  "(?:\\d{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
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
#define TROUPE_PCT "%[0-9A-Fa-f]{2}"
#define TROUPE_PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" TROUPE_PCT ")"
#define TROUPE_AUTHORITY                                                                                               \
  "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|" TROUPE_PCT ")*@)?(?:\\[(?:" TROUPE_IPV6                                         \
  "|[vV][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|" TROUPE_PCT ")*)(?::\\d*)?"
#define TROUPE_TAIL "(?:\\?(?:" TROUPE_PCHAR "|[/?])*)?(?:#(?:" TROUPE_PCHAR "|[/?])*)?"
#define TROUPE_SLASHES "(?:/" TROUPE_PCHAR "*)*"
#define TROUPE_URI                                                                                                     \
  "[A-Za-z][A-Za-z0-9+.-]*:(?://" TROUPE_AUTHORITY TROUPE_SLASHES "|/(?:" TROUPE_PCHAR "+" TROUPE_SLASHES              \
  ")?|" TROUPE_PCHAR "+" TROUPE_SLASHES "|)" TROUPE_TAIL
#define TROUPE_RELATIVE                                                                                                \
  "(?://" TROUPE_AUTHORITY TROUPE_SLASHES "|/(?:" TROUPE_PCHAR "+" TROUPE_SLASHES                                      \
  ")?|(?:[A-Za-z0-9._~!$&'()*+,;=@-]|" TROUPE_PCT ")+" TROUPE_SLASHES "|)" TROUPE_TAIL

constexpr auto duration = "P(?:(?:\\d+D|\\d+M(?:\\d+D)?|\\d+Y(?:\\d+M(?:\\d+D)?)?)"
                          "(?:T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S))?|"
                          "T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S)|\\d+W)";

constexpr std::array<std::pair<std::string_view, std::string_view>, 14> formats{{
  {"date-time", TROUPE_YEAR_MONTH_DAY "[Tt]" TROUPE_CLOCK},
  {"date", TROUPE_YEAR_MONTH_DAY},
  {"time", TROUPE_CLOCK},
  {"duration", duration},
  {"email",
   "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@" TROUPE_LABEL "(?:\\." TROUPE_LABEL ")*"},
  {"hostname", "(?=.{1,253}$)" TROUPE_LABEL "(?:\\." TROUPE_LABEL ")*"},
  {"ipv4", TROUPE_IPV4},
  {"ipv6", TROUPE_IPV6},
  {"uri", TROUPE_URI},
  {"uri-reference", TROUPE_URI "|" TROUPE_RELATIVE},
  {"uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"},
  {"byte", "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"},
  {"json-pointer", "(?:/(?:[^~/]|~[01])*)*"},
  {"relative-json-pointer", "(?:0|[1-9]\\d*)(?:#|(?:/(?:[^~/]|~[01])*)*)"},
}};

} // namespace

std::optional<std::string_view> format_pattern(std::string_view name) {
  const auto found = std::ranges::find(formats, name, [](const auto& f) { return f.first; });
  if (found == formats.end())
    return {};
  return found->second;
}

bool standard_but_refused(std::string_view name) {
  constexpr std::array<std::string_view, 6> refused{"idn-email",     "idn-hostname", "iri",
                                                    "iri-reference", "uri-template", "regex"};
  return std::ranges::find(refused, name) != refused.end();
}

} // namespace troupe::guides
