#include "kernels/formats/codebooks.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <string_view>

namespace troupe::kernels {

namespace {

/// The entries of a codebook of `Weights` weights each: sorted numbers, whose digits are the levels, the first the
/// lowest one. A character says how much larger than the one before a number is: '#' by 1 to '}' by 91; '~' adds 91 to
/// the next. Printed by tests/data/make_codebooks.py.
template <std::size_t Count, int Weights>
constexpr auto entries_of(std::string_view steps) {
  std::array<std::uint32_t, Count> entries{};
  constexpr int base = Weights == 8 ? 3 : 8; // levels
  int number = -1;
  std::size_t at = 0;
  for (const char c : steps) {
    if (c < '#') // the end of a line
      continue;
    number += c == '~' ? 91 : c - '#' + 1;
    if (c == '~')
      continue;
    for (int i = 0, left = number; i < Weights; ++i, left /= base)
      entries[at] |= static_cast<std::uint32_t>(left % base) << (i % 4 * 8 + i / 4 * 4);
    ++at;
  }
  return entries;
}

// Source of the codebooks: ggml's `ggml-common.h`, as gguf-py has them (https://github.com/ggml-org/ggml, MIT).
// clang-format off
constexpr auto iq1_entries = entries_of<2048, 8>(R"(#$$$$$%'$&$'($$*'$&$''$&$&#($$$#'(&$&$&$$$#)($$*'$&$''$&$'(('&$$&$$%%$$&$-$$*(((&&#1((($##*$$*$&&##$##$$$$$$$+%$$$$##$
0&.$($$$%#&$(($&-$&$''$&$'(&*'$&$''$&$'($&'#(*#%($&.$$$('$&$''$&$'((%%'$$$$''$&$,#$&'#($(&$&$#%.$$'%($$$$$$$&$&(&#####
#$$&**$($2$$*''$&$$$&$*($$*(&$'#$#%&'%##$$$##$&$$(&$%#$##$$#%&$&$$##$$$$$$$$##'####$#$$##$$$##$$##$##$##$$($##*##$$&&$
##$$$%###%$#$##(%%$*&.&*($$$$&$$##$$$(($,0$$&$%)##$&$##$##&&*%#$$&&$+))$)$$$$$$&&$((&%,$&$''$$$$'((%%'$&$''$$$$'($&()#
&($$$$##*''$(('$$%'$&$'(&$(('$$%'$&$'*$$(*##$&$$$(*($&%%.((($&$&$#%&$$,$%#$$$$$$('$'(((('#('$&*,$&$''$&$'($,'$&$,$&$*%
$&(,$&$($$$(''$'#'$&$,$&$'(&$('$&$''$&$'(&*.&$$$$$$2&%&&#$$$&$##$$&$($$$$##$#'$$$$$&$$'##-($$*(,$&&&+',(.%+($$$$##'#$$
$$&$$$$'#(%#$&$$##$$&&$$##$$#$####%$##$&##$&$##$#'$$$%%'#$$$$&$$$$%##$#$&$$&%&&#($$*(%&')'$&$&$$$(($$$((%#%#%#$&$$&&&$
####$$$$#%($&$##&$$$22$$($$&&0,($##$&$&$$&$&$&$##$($*$($%#&$($##$$####$&##$$$##$$########$$##$&$($##$$&&$&($&$$*$&$$##
$&$+'$$%#&+#($####%%$$$$##$###$#####$####$$($$$##$%$#&$####$$#####$#$$##$$#######$##########$#####$$#%###$####%$##$$##
#$##%$#$#$#######%%#############$$#%&$####$%&%$###'##$$&$&)'$$$$####$$##)'$$$$&(%#$&$$##$(($##$$########$$##$%%%%$####
(*%)&#&#$($#%%###&$$$$)%$##$$.*$$(*(&##$$$$$%/*($$$&$(#%$(%%%#$(#%&'%$(&$.&$-#&*##%/(&*1#$#%$&$$$$$$$$##$##$$*#%$$####
$$$&($$$%#$0##$$#$##$%$##$)$#$%#$#%$##''(''##$&$$$$###$#&$%$$&&$##$%$%1$((,$&$((('*'$(&($$$$#%##&$##$$&&%#''($#%.&#/$&
$&$$&#%))%$(&$&$,$&$''#$$$('$&$''$&$'($$$(($&$$$###'$$(%'$$('$&$''$&$-$&('$&$''$&$/&.$)%&$$&0&.(&$&($$#%$&$##$#'##$$$$
$$$$$*0&$(($&##&%#$&%'()&($&$''$&$$%($&(%$$&$''$&$'#'$$*($$$$$$&$$,,$('$&$''$&$'($$/$&$''$&$'(&##((&$($$*#'($$$(($$$$&
$$$$$$$&'#$##$&$*$($$&$$$(($&(*$$$$$$*$(*$-%$$&&$*&*$$####$##$*$(##$&($&$$##$##$%%%#$$##$$########$$##$%%$&####$##$$$$
$$(&%$'$($#%#$#$($'#&#%##*$$(,$((&&$$#%&#+(&$(*$$$$$$$##$$&$$$$$$##$&$#%$$($$&$&*++*$$$&$&.($##/$&$''$&$'($$$-$&$''$&$
'%%$$$#1$%%$$$$,'$%$/&$#)&&$'(&$('$&$''$&$3(($(%#$$$%###(>$$$$$*$&$($##$(&$$##$&$$2(&%$%*$%%$##%$.&&#$%$$&$&$,$&$-$$$-
$&$''$&$'*&%%(*&&$&$-'/$&$,$&$-$$/$&$''$&$)");

constexpr auto iq2_xxs_entries = entries_of<256, 8>(R"(#$$$$$$($&$$$((&$($(.*$(&0@..$4F<$(,$($&.,$(.($&.06$,:$4@4(&$(.&$($8::Z,h$(,*4.(&0(.4*,R,T(.&.6LBD0f$(4><&fPN$(82*$T*R
$r$(40J>6~':.R~EV$((&$((*&,$(44>*&:*:*,@(.F28,^t$(4&TL&,ZB4(&($F(:<Phr$:lHL,(B^^p(4:@JZ@F&x$P~M~~B$(6>>..bj$(&04FBD864
Htzl(.(P8J\T6,z~{N~YD8@l~'~~tR)");

constexpr auto iq2_xs_entries = entries_of<512, 8>(R"(#$$$$$$$$$$$$&$$$$$$$&$($$$&$&$,$$$$$$$$$$($$$&$((&$(4$$$&$(,$(&0*6$$$$$$$&$($$$&$$&,$(4$$$&$(,$(,*>$(0&$>:$$$$$$(&($(
(.4*$$(4>(64(N&,$$$$$$$&$($$$&$(*$$(4$$$&$(,$(4.$0$$&44F$$$&$(,$&$.(>$(4X.8R$($2.68&PfL$$$$$$$(,$(44,$(4(2B6D:&$(2$X>,
B.2^&($,860\.:.H&$6$$$$$$$&$($$$$$$(&($(4$$$&$(,$(4&2*$($0$X$$$&$&$,$(4.2$(.(N,*8(P$(4&**D,6(2Bp$$$&$((&$(4>$(&0$V@T$$
(,*4,4*(R(JB8*.2*D>,$~5:$(4.*.6$~-0@20n4&NzVTbD*D$$$&$(*$$(4$8$$$$&4,(H4F$2(&$($$0426@P6H>(28,$8*~'D(*,&$(402:6>l66&<(
(bH$N|JH^BF$&$,*PP(D&$&6>4FJ~W66,$&R((X$P$H2)");

constexpr auto iq2_s_entries = entries_of<1024, 8>(R"(#$$$$$$$$$$$$&$$$$$$$&$$$$$$$&$(&&$$$$$$$$&$($$$&$$$$&$&$($$($($$$&$(*$$$$$&0&&&**$$$$$$$&$$$$$$$$$$$$$$$($$$$&$&$($$$
$$$$$$&$&$$$$$$$&$($$$&$(,$$$$&0&$&$(,$(4$$$&$$$$&&$$$$$$$$&$(&*0$$($$$&*&$&$(,*4,$*&$,D.$$$$$$$&$$&$$$&$$$$$$$&$$&&$&
$($$$$$$$$$$$$&$$$$$$$&$($$$&$2$&$&($(&($2$(4$$$&$$$$&$&$$$$$$$&$($$$&$(,$$$$$$$&$($$$&$(,$(4&$&$(,$(4<$$$$$&$&*$$$&$(
,$:$$$&$(,$(28,(40J$$$&$$$$&&$$($$*(*&0$$($$(*$$($(,$(4*.&$&(:$2&$$$$&$&$($$$&$(,$(4&$&$(,$(0&>$(42H&($2$(<4$$(\8.>.$6
$$$$$$$$$$$&$$$$$$$$$$$($(&$&$($$$&$$$$$$($$$$$$$&$($$$&$(,$($$$((&$&$(,$:$$$$$$$$$$$$&$$$$$$$&$($$$&$(,$$$$$$$&$($$$&
$(*$$(4$$$&$(,$(48($&$$$$&$($$$&$(.(4$$$&$(,$(400$(4X$$$&$$$$$$$&$$$$$$$&$($$$&$2$$$$$$$&$($$$&$(,$(4&$&$(,$(2$>$$$$$$
$&$($$$&$(,$(4$$$&$(,$(4>$(0&X$$$&$(,$(*,>$(4X2L6&$$&$$$&$(&$&$(.(4$$$&$(,$(420(40B*&$&$(,$(4>$(4*202d2$(J6.<vN*$$$&$&
$&($($$$&*&($2$&$$$$&$($$$&$2$(2$&&$$2$(P$$$$$$$&*$$$&$(,$(4$$$&$(,$(4*6$(2$X&($2$(H*$:8V8$.4*$&$$$$(($$$&$(,$(4&($2$(
*H$(4T&$$$&$(,$(400$(4L&*B2D$(0&V$D&~14&&&*($$(H(>8D(.&$@&$2&$(4D0(2~-V2TP6>$,$&F6)");

constexpr auto iq3_xxs_entries = entries_of<256, 4>(R"(#$$'$&#$)+;$&$'$)&%$)-.*$$')$)$&,(0&(#$-E56'-.$&(52U96&$702$'$)$'$$-#:$))$Q$'$))D($0+/2-&EJ&45.o0B$)$'$&%+A$$%$))=&#*$
)(#$/#/6)&N&C0:6,=g$-9>)$)$7/'($0+-$=$'/7214_15((.=A47J76-0$.&o61#2(3@AG-C07o%$0T99*(29A0B*K?-&E*9qN0T2$0?B@GF(hCGSJ0T
$$#42N,L='8/07C2A$4f)");

constexpr auto iq3_s_entries = entries_of<512, 4>(R"(###%$###$$$#&('$%$$$'$)%%###$&#&%%&$&)/&'(#&$#%%%&%&(%$$$/%*(&%$)$%(&$/$&%-&$%((%(1,$.$&'(&$1'-%$031)$$.$&'/&6##$&#$$$
#$)%$0$%+(#$%$&')%()$0($,%$#&((%,%,)%%#%((#&'3(-$'$/$)&$&7)%()$1I&%/$=$'$).&3(*#$$$#$$$%$&#$)$$%$/#%$%$(%&%%&%():%%,$'
)$,&,%&$%&+$'$)(0-(+%)%&;%)'+/#-/*$',>&6&/$-'<)$$$%)$$'$%$,(*$$)'$/2,&$,(,$.;)&'$&#+$&(0*('&)3(&/)$-',,/55B$/$-E&((&%%
))2,'$$)('((&6$''&,'1%(.'$'$)&E$4-#;.$,C;36:'--(;(&(0&%%.('$$')+B(+,'(/9'#1/'.((%.,.F.5$YB$0Y$$.$722)?84(-'(*.'1W010%;
67=K$W&%+$.$.(2)-1$>%&(%)3;:%08&(':L2B9I)");

// clang-format on

/// iq1's entries, then the same with the weights of the lower half of the table.
constexpr auto iq1_moved_entries = [] {
  std::array<std::uint32_t, 2 * iq1_entries.size()> all{};
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = iq1_entries[i % iq1_entries.size()] | (i < iq1_entries.size() ? 0 : 0x44444444u);
  return all;
}();

/// Little-endian.
std::uint32_t load_u32(const std::uint8_t* p) {
  return load_u16(p) | static_cast<std::uint32_t>(load_u16(p + 2)) << 16;
}

/// Eight signs of the first seven.
std::uint32_t even_signs(std::uint32_t seven) {
  return seven | static_cast<std::uint32_t>(std::popcount(seven) % 2) << 7;
}

/// u32 of four signs of 7 bits and a scale.
void read_signs(coded_group& to, const std::uint8_t* p) {
  const auto word = load_u32(p);
  for (int i = 0; i < 4; ++i)
    to.signs |= even_signs(word >> 7 * i & 127) << 8 * i;
  to.scales = static_cast<std::uint8_t>((word >> 28) * 0x11);
}

/// `count` places of 8 bits, and `bits` bits above each from the lowest of `high` on.
void read_places(coded_group& to, const std::uint8_t* low, int count, std::uint32_t high, int bits) {
  for (int i = 0; i < count; ++i)
    to.places[i] = static_cast<std::uint16_t>(low[i] | (high >> bits * i & ((1u << bits) - 1)) << 8);
}

coded_group iq1_m_codes(const std::uint8_t* block, int part) {
  coded_group to;
  read_places(to, block + 4 * part, 4, load_u16(block + 32 + 2 * part), 4); // the bit above the three moves all down
  for (int i = 0; i < 4; ++i)
    to.d = static_cast<std::uint16_t>(to.d | (block[49 + 2 * i] >> 4) << 4 * i);
  const int scales = load_u16(block + 48 + part / 2 * 2) >> part % 2 * 6;
  to.scales = static_cast<std::uint8_t>((scales & 7) | (scales >> 3 & 7) << 4);
  return to;
}

coded_group iq1_s_codes(const std::uint8_t* block, int part) {
  coded_group to;
  to.d = load_u16(block);
  const std::uint32_t high = load_u16(block + 34 + 2 * part);
  read_places(to, block + 2 + 4 * part, 4, high, 3);
  for (int i = 0; i < 4; ++i)
    to.places[i] = static_cast<std::uint16_t>(to.places[i] | high >> 15 << 11);
  to.scales = static_cast<std::uint8_t>((high >> 12 & 7) * 0x11);
  return to;
}

} // namespace

coded_group stored_codes(weight_format f, const std::uint8_t* block, int part) {
  coded_group to;
  to.d = load_u16(block);
  switch (f) {
    case weight_format::iq1_s: return iq1_s_codes(block, part);
    case weight_format::iq1_m: return iq1_m_codes(block, part);
    case weight_format::iq2_xxs:
      read_places(to, block + 2 + 8 * part, 4, 0, 0);
      read_signs(to, block + 6 + 8 * part);
      break;
    case weight_format::iq2_xs:
      for (int i = 0; i < 4; ++i) {
        const auto both = load_u16(block + 2 + 8 * part + 2 * i);
        to.places[i] = both & 511;
        to.signs |= even_signs(both >> 9) << 8 * i;
      }
      to.scales = block[66 + part];
      break;
    case weight_format::iq2_s:
      read_places(to, block + 2 + 4 * part, 4, block[66 + part], 2);
      to.signs = load_u32(block + 34 + 4 * part);
      to.scales = block[74 + part];
      break;
    case weight_format::iq3_xxs:
      read_places(to, block + 2 + 8 * part, 8, 0, 0);
      read_signs(to, block + 66 + 4 * part);
      break;
    case weight_format::iq3_s:
      read_places(to, block + 2 + 8 * part, 8, block[66 + part], 1);
      to.signs = load_u32(block + 74 + 4 * part);
      to.scales = static_cast<std::uint8_t>((block[106 + part / 2] >> part % 2 * 4 & 15) * 0x11);
      break;
    default: break; // the others have none
  }
  return to;
}

const std::uint32_t* codebook_of(weight_kind kind) {
  switch (kind) {
    case weight_kind::iq1: return iq1_moved_entries.data();
    case weight_kind::iq2_xxs: return iq2_xxs_entries.data();
    case weight_kind::iq2_xs: return iq2_xs_entries.data();
    case weight_kind::iq2_s: return iq2_s_entries.data();
    case weight_kind::iq3_xxs: return iq3_xxs_entries.data();
    case weight_kind::iq3_s: return iq3_s_entries.data();
    default: return nullptr;
  }
}

weight_group decoded(weight_kind kind, const coded_group& group) {
  const auto shape = shape_of(kind);
  const auto* entries = codebook_of(kind);
  weight_group to;
  to.d = group.d;
  to.unit = shape.unit;
  to.zero = shape.zero;
  to.scales[0] = static_cast<std::int8_t>(2 * (group.scales & 15) + 1);
  to.scales[1] = static_cast<std::int8_t>(2 * (group.scales >> 4) + 1);
  for (int i = 0; i < 32; ++i) {
    const int j = i % shape.weights;
    const auto level = entries[group.places[i / shape.weights]] >> (j % 4 * 8 + j / 4 * 4) & 15;
    to.codes[i] = shape.values[level | (group.signs >> i & 1) << 3];
  }
  return to;
}

} // namespace troupe::kernels
