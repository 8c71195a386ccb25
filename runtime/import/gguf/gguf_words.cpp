#include "runtime/import/gguf/gguf_words.hpp"

#include "runtime/tokenizer/formats/word_patterns.hpp"

namespace troupe {

namespace {

namespace words = tokenization::words;

constexpr std::string_view one_digit = R"(\p{N})", up_to_3_digits = R"(\p{N}{1,3})", line = R"([^\n]+|[\n]+)";

// Groups of three digits from the right. The look-ahead ends after 900 digits, so that long runs take linear time.
constexpr std::string_view triples = R"(\d{1,3}(?=(?:\d{3}){0,300}\b))",
                           number_triples = R"(\p{N}{1,3}(?=(?:\p{N}{3}){0,300}(?!\p{N})))",
                           before_triples = R"((?=(?:\d{3}){1,300}(?!\d)))";

// clang-format off
constexpr std::string_view
  jais2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})",
  deepseek_letters = // as code points, because some would change where a text is normalised
    R"(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386})"
    R"(\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF})"
    R"(\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D})"
    R"(\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})"
    R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184})"
    R"(\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06})"
    R"(\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+)",
  deepseek_punctuation = R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)",
  deepseek_ideographs = "[一-龥ࠀ-一가-퟿]+",
  spark =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)",
  youtu_scripts = R"([가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+)",
  youtu =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
  falcon_punctuation = R"([\p{P}\$\+<=>\^~\|`]+)",
  unnamed_punctuation = R"([\p{P}\$\+<=>\^~\|]+)", // llama.cpp's choice where files say nothing
  bloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)",
  bailing =
    R"((?i:'s|'d|'m|'t|'ll|'ve|'re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
  seed = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)",
  ufakzeka = R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
  exaone_moe =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)",
  minicpm =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
  asian_scripts = "[一-鿿㐀-䶿\\x{F900}-\\x{FAFF}぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+";
// clang-format on

std::vector<word_rule> make_rules() {
  std::vector<word_rule> rules;
  const auto add = [&](std::initializer_list<std::string_view> names, const word_rule& like) {
    for (const auto name : names) {
      rules.push_back(like);
      rules.back().name = name;
    }
  };
  const std::vector<std::string_view> gpt2{words::gpt2}, gpt2_digits{one_digit, words::gpt2},
    deepseek3{up_to_3_digits, words::kana_and_ideographs, words::deepseek3};
  // The first of several names for the same words is the one that files are written with.
  add({"gpt-2"}, {.steps = gpt2});
  add({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"},
      {.steps = gpt2_digits});
  add({"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"},
      {.steps = {words::gpt4}, .ignore_merges = true, .bos = true});
  // llama.cpp does not normalise to NFC for qwen2; the models' own tokenizers do.
  add({"qwen2", "deepseek-r1-qwen"}, {.steps = {words::qwen2}, .nfc = true});
  add({"qwen35"}, {.steps = {words::qwen35}, .nfc = true});
  add({"stablelm2", "hunyuan", "solar-open", "grok-2", "kormo", "f2llmv2", "megrez"}, {.steps = {words::qwen2}});
  add({"olmo", "phi-2", "mpt", "jais", "trillion", "granite-docling", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de",
       "gigachat", "a.x-4.0", "mellum", "modern-bert", "exaone4"},
      {.steps = gpt2});
  add({"jina-v1-en", "jina-v2-code", "roberta-bpe"}, {.steps = gpt2, .sep = true});
  add({"chatglm-bpe", "glm4", "dbrx", "smaug-bpe"}, {.steps = {words::gpt4}});
  add({"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {.steps = {words::gpt4o}});
  add({"granite-embed-multi-97m"}, {.steps = {words::gpt4o}, .ignore_merges = true});
  add({"tiny_aya", "cohere2moe"}, {.steps = {triples, words::gpt4o}});
  add({"tekken"}, {.steps = {words::tekken}, .ignore_merges = true, .bos = true});
  add({"kimi-k2"}, {.steps = {words::kimi_k2}});
  add({"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"}, {.steps = deepseek3});
  add({"deepseek-llm"},
      {.steps = {"[\r\n]", deepseek_letters, deepseek_punctuation, R"(\s+$)", deepseek_ideographs, R"(\p{N}+)"}});
  add({"deepseek-coder"}, {.steps = {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", deepseek_ideographs, one_digit}});
  add({"spark2_5"}, {.steps = {up_to_3_digits, words::kana_and_ideographs, spark, one_digit}});
  add({"youtu"}, {.steps = {youtu_scripts, youtu}, .ignore_merges = true});
  add({"falcon"}, {.steps = {falcon_punctuation, words::gpt2, "[0-9][0-9][0-9]"}});
  add({"default"}, {.steps = {unnamed_punctuation, words::gpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}});
  add({"bloom", "poro-chat", "gpt3-finnish"}, {.steps = {bloom}});
  add({"viking"}, {.steps = {bloom, one_digit}});
  add({"jais-2"}, {.steps = {jais2}});
  add({"chameleon"},
      {.steps = {"<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ", one_digit, R"([\p{P}!-/:-@\[-`{-~])",
                 words::gpt2},
       .bos = true});
  add({"superbpe"}, {.steps = {R"(\p{N}+)", before_triples}});
  add({"bailingmoe", "bailingmoe2", "llada-moe"}, {.steps = {bailing}});
  add({"seed-coder"}, {.steps = {seed}});
  add({"ufakzeka"}, {.steps = {ufakzeka}});
  add({"exaone-moe"}, {.steps = {exaone_moe}});
  add({"minicpm5"}, {.steps = {up_to_3_digits, minicpm}, .ignore_merges = true});
  add({"afmoe"}, {.steps = {number_triples, asian_scripts, words::deepseek3}});
  add({"laguna"}, {.steps = {line, words::qwen2}});
  add({"gemma4", "granite-embed-multi-311m", "sarvam-moe"},
      {.steps = {line}, .characters = true, .escapes_spaces = true});
  add({"whitespace"}, {.steps = {R"(\S+)"}, .characters = true});
  return rules;
}

} // namespace

std::span<const word_rule> word_rules() {
  static const auto rules = make_rules();
  return rules;
}

} // namespace troupe
