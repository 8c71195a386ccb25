#include "runtime/import/gguf_layout.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/import/gguf_recurrent_layout.hpp"
#include "runtime/import/hub_cache.hpp"
#include "runtime/sampling/sampling_table.hpp"
#include "runtime/support/json.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <ranges>
#include <unordered_map>

namespace troupe {

namespace {

std::uint32_t u32(int n) { return static_cast<std::uint32_t>(n); }

void describe_rope(gguf_writer& to, const std::string& prefix, const model_config& config, const std::string& name) {
  const auto& rope = config.rope;
  const bool implied = config.family == "gpt_oss"; // whose files are never truncated
  to.add(prefix + "rope.freq_base", static_cast<float>(rope.theta));
  if (rope.type == rope_type::dynamic || (rope.type == rope_type::yarn && !rope.truncate && !implied))
    throw failure(errc::unsupported,
                  name + ": GGUF cannot say how its positions are scaled (" +
                    (rope.type == rope_type::dynamic ? "dynamic" : "yarn without `truncate`") + ")");
  if (rope.type == rope_type::longrope)
    throw failure(errc::unsupported, name + ": LongRoPE is not written to GGUF files");
  if (rope.type != rope_type::linear && rope.type != rope_type::yarn)
    return; // llama3's scaling is a tensor
  const bool yarn = rope.type == rope_type::yarn;
  to.add(prefix + "rope.scaling.type", yarn ? "yarn" : "linear");
  to.add(prefix + "rope.scaling.factor", static_cast<float>(rope.factor));
  if (!yarn)
    return;
  const double natural = yarn_attention_factor(rope.factor, std::nullopt, std::nullopt);
  to.add(prefix + "rope.scaling.original_context_length", static_cast<std::uint32_t>(rope.original_context));
  to.add(prefix + "rope.scaling.attn_factor", static_cast<float>(rope.attention_factor / natural));
  to.add(prefix + "rope.scaling.yarn_beta_fast", static_cast<float>(rope.beta_fast));
  to.add(prefix + "rope.scaling.yarn_beta_slow", static_cast<float>(rope.beta_slow));
}

using architecture_key = std::function<std::string(std::string_view)>;

/// Heads that share a latent, as the absorbed form has them; their own lengths under other keys.
void describe_latent(gguf_writer& to, const architecture_key& key, const model_config& config) {
  const auto& latent = config.latent;
  if (!config.recurrent)
    to.add(key("attention.head_count_kv"), u32(1));
  to.add(key("attention.key_length"), u32(latent.kv_rank + latent.rotated));
  to.add(key("attention.value_length"), u32(latent.kv_rank));
  to.add(key("attention.key_length_mla"), u32(latent.plain + latent.rotated));
  to.add(key("attention.value_length_mla"), u32(latent.value));
  to.add(key("attention.kv_lora_rank"), u32(latent.kv_rank));
  if (latent.q_rank > 0)
    to.add(key("attention.q_lora_rank"), u32(latent.q_rank));
  to.add(key("rope.dimension_count"), u32(latent.rotated));
  if (config.rope.type != rope_type::yarn || config.rope.factor <= 1)
    return;
  const double scale = static_cast<double>(config.attention_scale) * std::sqrt(double(latent.plain + latent.rotated));
  to.add(key("rope.scaling.yarn_log_multiplier"),
         static_cast<float>((std::sqrt(scale) - 1) / std::log(config.rope.factor)));
}

void describe_experts(gguf_writer& to, const architecture_key& key, const model_config& config) {
  const auto& experts = config.experts;
  if (experts.count == 0)
    return;
  to.add(key("expert_count"), u32(experts.count));
  to.add(key("expert_used_count"), u32(experts.chosen));
  to.add(key("expert_feed_forward_length"), u32(experts.ffn));
  const auto dense = std::ranges::find(config.sparse, true) - config.sparse.begin();
  to.add(key("leading_dense_block_count"), static_cast<std::uint32_t>(dense));
  if (experts.shared_ffn > 0) {
    to.add(key("expert_shared_feed_forward_length"), u32(experts.shared_ffn));
    to.add(key("expert_shared_count"), u32(std::max(1, experts.shared_ffn / experts.ffn)));
  }
  to.add(key("expert_gating_func"), u32(experts.scores == router_scores::sigmoid ? 2 : 1));
  to.add(key("expert_weights_norm"), experts.renormalise);
  if (experts.scale != 1)
    to.add(key("expert_weights_scale"), experts.scale);
  if (experts.groups > 1) {
    to.add(key("expert_group_count"), u32(experts.groups));
    to.add(key("expert_group_used_count"), u32(experts.chosen_groups));
  }
  if (config.family == "ernie4_5_moe" || config.family == "llama4_text")
    to.add(key("interleave_moe_layer_step"),
           u32(dense + 1 < std::ssize(config.sparse) && !config.is_sparse(static_cast<int>(dense) + 1) ? 2 : 1));
}

/// What else differs from a llama, under the keys that the readers of such architectures look for.
void describe_differences(gguf_writer& to, const architecture_key& key, const model_config& config,
                          const std::string& name) {
  const int window = *std::ranges::max_element(config.windows);
  if (!std::ranges::all_of(config.windows, [&](int w) { return w == 0 || w == window; }))
    throw failure(errc::unsupported, name + ": GGUF cannot say that sliding windows are of several lengths");
  if (window > 0)
    to.add(key("attention.sliding_window"), u32(window));
  if (window > 0 && std::ranges::find(config.windows, 0) != config.windows.end()) {
    std::vector<std::byte> slides;
    for (const int w : config.windows)
      slides.push_back(std::byte{w > 0});
    to.add(key("attention.sliding_window_pattern"),
           gguf_value{gguf_type::array, slides, gguf_type::boolean, slides.size()});
  }
  if (config.local_rope)
    to.add(key("rope.freq_base_swa"), static_cast<float>(config.local_rope->theta));
  if (config.attention_cap > 0)
    to.add(key("attn_logit_softcapping"), config.attention_cap);
  if (config.logit_cap > 0)
    to.add(key("final_logit_softcapping"), config.logit_cap);
  if (config.family.starts_with("granite")) {
    to.add(key("embedding_scale"), config.embedding_scale);
    to.add(key("residual_scale"), config.residual_scale);
    to.add(key("logit_scale"), 1 / config.logit_scale);
    to.add(key("attention.scale"), config.attention_scale);
  } else if (config.logit_scale != 1) {
    to.add(key("logit_scale"), config.logit_scale);
  }
  if (config.family == "gpt_neox")
    to.add(key("use_parallel_residual"), config.parallel);
  if (config.growth && config.family != "llama4_text")
    to.add(key("attention.temperature_scale"), config.growth.rate);
  if (config.family == "ministral3" && config.rope.type == rope_type::yarn)
    to.add(key("rope.scaling.yarn_log_multiplier"), 1.0f);
}

void describe_config(gguf_writer& to, const model_config& config, const std::string& name) {
  const std::string architecture(gguf_architecture_for(config));
  const architecture_key key = [&](std::string_view rest) { return architecture + "." + std::string(rest); };
  to.add("general.architecture", architecture);
  to.add("general.name", name);
  to.add(key("vocab_size"), u32(config.vocab));
  to.add(key("context_length"), u32(config.max_context));
  to.add(key("embedding_length"), u32(config.hidden));
  to.add(key("block_count"), u32(config.layers));
  const bool attends = std::ranges::any_of(std::views::iota(0, config.layers),
                                           [&](int i) { return config.parts_of(i).attention; });
  // Where layers differ, a number for each, which is 0 where there is nothing.
  const auto of_layers = [&](const char* name, const auto& value_of) {
    std::vector<std::int32_t> values;
    for (int i = 0; i < config.layers; ++i)
      values.push_back(value_of(i));
    to.add(key(name), values);
  };
  const bool listed = config.recurrent && attends && config.family != "falcon_h1" && !config.attention_gate;
  if (config.family == "nemotron_h")
    of_layers("feed_forward_length", [&](int i) {
      return !config.parts_of(i).mlp ? 0 : config.is_sparse(i) ? config.experts.ffn : config.ffn;
    });
  else
    to.add(key("feed_forward_length"), u32(config.ffn));
  to.add(key("attention.head_count"), u32(attends ? config.heads : 0));
  to.add(key(config.norm == norm_type::layer ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"),
         config.norm_eps);
  if (config.family == "nemotron_h") // whose files have it under this name
    to.add(key("attention.layer_norm_epsilon"), config.norm_eps);
  if (config.latent)
    describe_latent(to, key, config);
  if (listed)
    of_layers("attention.head_count_kv", [&](int i) { return config.parts_of(i).attention ? config.kv_heads : 0; });
  else if (!config.latent)
    to.add(key("attention.head_count_kv"), u32(attends ? config.kv_heads : 0));
  if (!config.latent && attends) {
    to.add(key("attention.key_length"), u32(config.head_dim));
    to.add(key("attention.value_length"), u32(config.head_dim));
    to.add(key("rope.dimension_count"), u32(config.rope.dims > 0 ? config.rope.dims : config.head_dim));
  }
  describe_rope(to, architecture + ".", config, name);
  describe_experts(to, key, config);
  describe_recurrence(to, key, config);
  describe_differences(to, key, config, name);
}

/// A tokenizer.json, already accepted by `tokenizer::load`.
class tokenizer_file {
public:
  tokenizer_file(const std::filesystem::path& file, const tokenizer& tokens, int vocab)
    : name_(file.string()),
      document_(json::document::load(file, files::tokenizer)),
      model_(*json::find(document_.root(), "model")),
      tokens_(tokens),
      vocab_(vocab) {}

  void describe(gguf_writer& to) const {
    if (!json::find(model_, "merges"))
      throw failure(errc::unsupported, name_ + ": GGUF files can be written only with BPE tokenizers");
    const bool bytes = flag("byte_fallback");
    const auto merges = this->merges();
    std::vector<std::string> texts;
    std::vector<std::int32_t> kinds;
    for (token_id id = 0; id < vocab_; ++id) {
      const auto text = tokens_.token(id);
      const bool there = !text.empty();
      texts.push_back(there ? std::string(text) : "[PAD" + std::to_string(id) + "]");
      const bool is_byte = bytes && text.size() == 6 && text.starts_with("<0x") && text.ends_with('>');
      kinds.push_back(static_cast<std::int32_t>(!there                     ? gguf_token_kind::unused
                                                  : tokens_.unk() == id    ? gguf_token_kind::unknown
                                                  : tokens_.is_special(id) ? gguf_token_kind::control
                                                  : is_byte                ? gguf_token_kind::byte
                                                                           : gguf_token_kind::normal));
    }
    mark_added(kinds);
    to.add("tokenizer.ggml.model", bytes ? "llama" : "gpt2");
    to.add("tokenizer.ggml.tokens", texts);
    if (bytes) {
      to.add("tokenizer.ggml.scores", scores(texts, kinds, merges));
      to.add("tokenizer.ggml.add_space_prefix", has_prefix());
    } else {
      std::vector<std::string> lines;
      for (const auto& [left, right] : merges)
        lines.push_back(left + " " + right);
      to.add("tokenizer.ggml.merges", lines);
      to.add("tokenizer.ggml.pre", words());
    }
    to.add("tokenizer.ggml.token_type", kinds);
  }

private:
  using merge = std::pair<std::string, std::string>;

  bool flag(std::string_view key) const {
    const auto found = json::find(model_, key);
    return found && found->is_bool() && found->get_bool().value();
  }

  /// Merges are pairs, or texts with a space in between.
  std::vector<merge> merges() const {
    std::vector<merge> result;
    json::array list;
    if (const auto found = json::find(model_, "merges"); !found || found->get(list))
      return result;
    for (const json::value item : list) {
      std::string_view text;
      json::array pair;
      if (!item.get(text)) {
        const auto space = text.find(' ', 1);
        result.emplace_back(text.substr(0, space), text.substr(space + 1));
      } else if (!item.get(pair)) {
        result.emplace_back(pair.at(0).get_string().value(), pair.at(1).get_string().value());
      }
    }
    return result;
  }

  /// Added tokens are found in texts even if they are not special.
  void mark_added(std::vector<std::int32_t>& kinds) const {
    json::array added;
    if (const auto found = json::find(document_.root(), "added_tokens"); !found || found->get(added))
      return;
    for (const json::value token : added) {
      const auto id = json::find(token, "id");
      const auto at = id && id->is_int64() ? id->get_int64().value() : -1;
      if (at >= 0 && at < vocab_ && !tokens_.is_special(static_cast<token_id>(at)))
        kinds[static_cast<std::size_t>(at)] = static_cast<std::int32_t>(gguf_token_kind::user_defined);
    }
  }

  /// Pieces merged earlier score higher; pieces that are never merged come last.
  std::vector<float> scores(const std::vector<std::string>& texts, const std::vector<std::int32_t>& kinds,
                            const std::vector<merge>& merges) const {
    std::unordered_map<std::string, std::size_t> rank;
    for (std::size_t i = 0; i < merges.size(); ++i)
      rank.emplace(merges[i].first + merges[i].second, i);
    std::vector<float> result;
    for (std::size_t id = 0; id < texts.size(); ++id) {
      const auto found = rank.find(texts[id]);
      const bool is_byte = kinds[id] == static_cast<std::int32_t>(gguf_token_kind::byte);
      result.push_back(is_byte                 ? 0.0f
                         : found == rank.end() ? -1e6f - static_cast<float>(id)
                                               : -static_cast<float>(found->second));
    }
    return result;
  }

  /// Whether texts are prefixed with a space.
  bool has_prefix() const {
    const auto normalizer = json::find(document_.root(), "normalizer");
    const auto pre = json::find(document_.root(), "pre_tokenizer");
    return (normalizer && simdjson::minify(*normalizer).find("\"Prepend\"") != std::string::npos) ||
      (pre && simdjson::minify(*pre).find("\"always\"") != std::string::npos);
  }

  std::string words() const {
    const auto pre = json::find(document_.root(), "pre_tokenizer");
    const auto name = pre ? gguf_pre_tokenizer(*pre, flag("ignore_merges")) : std::nullopt;
    if (!name)
      throw failure(errc::unsupported, name_ + ": GGUF has no name for how its `pre_tokenizer` splits texts");
    return *name;
  }

  std::string name_;
  json::document document_;
  json::value model_;
  const tokenizer& tokens_;
  token_id vocab_;
};

void describe_special(gguf_writer& to, const tokenizer& tokens, const generation_defaults& generation) {
  const auto id = [&](const char* key, const std::optional<token_id>& token) {
    if (token)
      to.add(key, u32(token.value()));
  };
  const auto& stops = generation.stops;
  auto eos = tokens.eos();
  if (!eos && !stops.empty())
    eos = stops.front();
  id("tokenizer.ggml.bos_token_id", tokens.bos());
  id("tokenizer.ggml.eos_token_id", eos);
  id("tokenizer.ggml.unknown_token_id", tokens.unk());
  std::vector<token_id> others;
  std::ranges::copy_if(stops, std::back_inserter(others), [&](token_id stop) { return stop != eos; });
  if (!others.empty())
    to.add("tokenizer.ggml.eot_token_id", u32(others[0]));
  if (others.size() > 1)
    to.add("tokenizer.ggml.eom_token_id", u32(others[1]));
  if (others.size() > 2)
    to.add("tokenizer.ggml.eos_token_ids", std::vector<std::int32_t>(stops.begin(), stops.end()));
  const auto ids = tokens.encode("a", true);
  to.add("tokenizer.ggml.add_bos_token", !ids.empty() && tokens.bos() == ids.front());
  to.add("tokenizer.ggml.add_eos_token", !ids.empty() && tokens.eos() == ids.back());
}

/// The defaults that llama.cpp knows, where they are not those of every model.
void describe_sampling(gguf_writer& to, const sampling_params& sampling) {
  const sampling_params usual;
  sampling_fields::for_each([&]<class T>(const sampling_field<T>& field) {
    const auto key = gguf_sampling_key(field.name);
    if (!key || sampling.*field.member == usual.*field.member)
      return;
    if constexpr (std::is_integral_v<T>)
      to.add(*key, static_cast<std::int32_t>(sampling.*field.member));
    else
      to.add(*key, sampling.*field.member);
  });
}

} // namespace

void describe_model(gguf_writer& to, const std::filesystem::path& folder, const model_config& config,
                    const generation_defaults& generation, const tokenizer& tokens) {
  const auto name = hub_id_of(folder).value_or(std::filesystem::weakly_canonical(folder).filename().string());
  describe_config(to, config, name);
  tokenizer_file(folder / "tokenizer.json", tokens, config.vocab).describe(to);
  describe_special(to, tokens, generation);
  describe_sampling(to, generation.sampling);
  const auto chat = chat_template::source(folder);
  if (chat)
    to.add("tokenizer.chat_template", chat->standard);
  if (chat && chat->tool_use) {
    to.add("tokenizer.chat_templates", std::vector<std::string>{"tool_use"});
    to.add("tokenizer.chat_template.tool_use", *chat->tool_use);
  }
}

} // namespace troupe
