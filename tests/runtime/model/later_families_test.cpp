// Configurations of the families of 2025 and 2026, and of encoders: what they mean, and what is refused by name.
#include "runtime/model/model_config.hpp"
#include "runtime/model/model_products.hpp"
#include "runtime/model/precision.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include "runtime/support/json/json.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

/// `more` comes first: of a key that is there twice, the first one counts.
model_config config_of_family(const std::string& family, const std::string& more = "") {
  return parse_model_config(json::document::parse(
    "{\"model_type\":\"" + family + "\"," + more + (more.empty() ? "" : ",") +
      R"("vocab_size":48,"hidden_size":16,"intermediate_size":24,"num_hidden_layers":6,"num_attention_heads":4})",
    "config.json"));
}

std::string refusal_of_later(const std::string& family, const std::string& more) {
  return failure_of([&] { config_of_family(family, more); });
}

} // namespace

TEST_CASE("Layers of later families: windows, chunks, rotation and shared K and V") {
  const auto cohere2 = config_of_family("cohere2", R"("num_key_value_heads":2,"sliding_window":9)");
  CHECK(cohere2.windows == std::vector<int>{9, 9, 9, 0, 9, 9});
  CHECK(cohere2.is_unrotated(3));
  CHECK(!cohere2.is_unrotated(4));
  const auto exaone = config_of_family("exaone4",
                                       R"("num_key_value_heads":2,"sliding_window":9,"sliding_window_pattern":"LLG")");
  CHECK(exaone.windows == std::vector<int>{9, 9, 0, 9, 9, 0});
  CHECK(config_of_family("exaone4", R"("num_key_value_heads":2,"sliding_window":null)").unrotated.empty());
  const auto llama4 = config_of_family("llama4_text",
                                       R"("num_key_value_heads":2,"head_dim":8,"attention_chunk_size":32)");
  CHECK(llama4.chunks == std::vector<int>{32, 32, 32, 0, 32, 32});
  CHECK(llama4.growth.unrotated);
  CHECK(config_of_family("llama4_text", R"("num_key_value_heads":2,"head_dim":8,"attention_chunk_size":null)")
          .chunks.front() == 0);
  const auto gemma4 = config_of_family("gemma4_text", R"("num_key_value_heads":2,"head_dim":8,"global_head_dim":12,
"num_kv_shared_layers":2,"use_double_wide_mlp":true,"vocab_size_per_layer_input":48,"hidden_size_per_layer_input":4,
"layer_types":["sliding_attention","full_attention","sliding_attention","full_attention","sliding_attention",
"full_attention"])");
  CHECK(gemma4.kv_layers == std::vector<int>{0, 1, 2, 3, 2, 3});
  CHECK(gemma4.ffns == std::vector<int>{24, 24, 24, 24, 48, 48});
  CHECK(gemma4.head_dim_of(0) == 8);
  CHECK(gemma4.head_dim_of(1) == 12);
  CHECK(gemma4.cache_layer_of(5) == 3);
  CHECK(kv_shape_of(gemma4, kernels::dtype::f32, 3).own ==
        std::vector<kernels::kv_heads_shape>{{2, 8}, {2, 12}, {2, 8}, {2, 12}});
  const auto gemma3n = parse_model_config(json::document::parse(
    R"({"model_type":"gemma3n_text","vocab_size":48,"hidden_size":16,"num_hidden_layers":6,"num_attention_heads":4,
"num_key_value_heads":2,"head_dim":8,"sliding_window":9,"num_kv_shared_layers":1,"laurel_rank":3,
"intermediate_size":[8,8,8,8,8,16],"hidden_size_per_layer_input":4,"vocab_size_per_layer_input":40,
"activation_sparsity_pattern":[0.95,0.5,0,0,0,0]})",
    "config.json"));
  CHECK(gemma3n.windows == std::vector<int>{9, 9, 9, 9, 0, 9});
  CHECK(gemma3n.kv_layers == std::vector<int>{0, 1, 2, 3, 4, 3});
  CHECK(gemma3n.ffns == std::vector<int>{8, 8, 8, 8, 8, 16});
  CHECK(gemma3n.layer_input_rows == 40);
  CHECK(gemma3n.altup == altup_config{.streams = 4, .active = 0, .laurel = 3, .scaled = true});
  CHECK(gemma3n.gate_cutoffs[0] == doctest::Approx(1.6448536).epsilon(1e-6));
  CHECK(gemma3n.gate_cutoffs[1] == doctest::Approx(0));
  CHECK(gemma3n.cuts_gates(1));
  CHECK_FALSE(gemma3n.cuts_gates(2));
  CHECK(gemma3n.logit_cap == 30);
  CHECK(config_of_family("modernbert", R"("local_attention":8)").windows == std::vector<int>{0, 5, 5, 0, 5, 5});
}

TEST_CASE("SmallThinker: lists of layers, and how experts are weighed") {
  const std::string sizes = R"("num_key_value_heads":2,"head_dim":8,"moe_ffn_hidden_size":12,)";
  const auto plain = config_of_family("smallthinker", sizes + R"("moe_num_primary_experts":3)");
  CHECK(plain.ffn == 12);
  CHECK(plain.tied);
  CHECK(plain.act.type == kernels::activation_type::relu);
  CHECK(plain.windows == std::vector<int>(6, 0));
  CHECK(plain.unrotated.empty());
  CHECK(plain.rope.theta == 1000000);
  CHECK(plain.experts.early);
  CHECK(plain.experts.chosen == 3);
  CHECK(plain.experts.scores == router_scores::sigmoid);
  CHECK(plain.experts.renormalise);
  const auto mixed = config_of_family(
    "smallthinker",
    sizes + R"("sliding_window_layout":[0,1,1,1,0,1],"rope_layout":[0,1,1,1,0,1],"sliding_window_size":9,
"moe_num_active_primary_experts":6,"moe_primary_router_apply_softmax":true,"moe_enable_early_router":true)");
  CHECK(mixed.windows == std::vector<int>{0, 9, 9, 9, 0, 9});
  CHECK(mixed.unrotated == std::vector<bool>{true, false, false, false, true, false});
  CHECK(mixed.experts.chosen == 6);
  CHECK(mixed.experts.scores == router_scores::chosen);
  const auto refused = [&](const std::string& more) { return refusal_of_later("smallthinker", sizes + more); };
  CHECK(refused(R"("rope_layout":[0,1])") == "config.json: `rope_layout` must hold 6 numbers, found 2");
  CHECK(refused(R"("sliding_window_layout":[0,1,2,0,0,0])").find("sliding_window_layout") != std::string::npos);
  CHECK(refused(R"("moe_layer_layout":[1,1,0,1,1,1])") ==
        "config.json: `moe_layer_layout` asks for layers without experts, which are not supported");
  CHECK(refused(R"("moe_enable_early_router":false)") ==
        "config.json: `moe_enable_early_router` is false, which is not supported");
  CHECK(refused(R"("moe_enable_secondary_experts":true)") ==
        "config.json: `moe_enable_secondary_experts` is true, which is not supported");
  CHECK(refused(R"("norm_topk_prob":false)") == "config.json: `norm_topk_prob` is false, which is not supported");
  CHECK(refused(R"("use_qk_norm":true)") == "config.json: `use_qk_norm` is true, which is not supported");
  CHECK(refused(R"("moe_shared_primary_experts":1)") ==
        "config.json: `moe_shared_primary_experts` is supported as 0 only");
  CHECK(refused(R"("hidden_act":"silu")") == "config.json: `hidden_act` is supported as relu only");
  CHECK(refused(R"("moe_num_primary_experts":4,"moe_num_active_primary_experts":5)")
          .find("moe_num_active_primary_experts") != std::string::npos);
  CHECK(refusal_of_later("smallthinker", R"("head_dim":8)").find("moe_ffn_hidden_size") != std::string::npos);
}

TEST_CASE("Routers: what a configuration says of scores, norms and groups counts, or is refused by key and value") {
  const std::string small = R"("num_experts":8,"num_experts_per_tok":2,"num_key_value_heads":2,"head_dim":8)";
  const auto softmax = config_of_family("afmoe", small + R"(,"score_func":"softmax","route_norm":true)").experts;
  CHECK(softmax.scores == router_scores::softmax);
  CHECK(softmax.correction);
  CHECK_FALSE(softmax.renormalise); // as its authors' code has it
  CHECK(config_of_family("afmoe", small).experts.renormalise);
  CHECK_FALSE(config_of_family("afmoe", small + R"(,"route_norm":false)").experts.renormalise);
  CHECK_FALSE(config_of_family("hy_v3", small + R"(,"route_norm":false)").experts.renormalise);
  CHECK_FALSE(config_of_family("hy_v3", small + R"(,"moe_router_enable_expert_bias":false)").experts.correction);
  CHECK(config_of_family("dots1", R"("num_key_value_heads":2,"scoring_func":"noaux_tc")").experts.scores ==
        router_scores::sigmoid);
  const auto says = [&](const char* family, const std::string& key, const std::string& value, const std::string& what) {
    CAPTURE(family);
    CHECK(refusal_of_later(family, small + ",\"" + key + "\":" + value) == "config.json: `" + key + "` is " + what);
  };
  says("afmoe", "score_func", R"("tanh")", "`tanh`, supported are sigmoid and softmax");
  for (const char* key : {"num_expert_groups", "num_limited_groups", "topk_group", "n_group"})
    says("afmoe", key, "2", "2, supported is 1");
  says("hy_v3", "moe_router_use_sigmoid", "false", "false, which is not supported");
  says("hy_v3", "qk_norm", "false", "false, which is not supported");
  for (const char* family : {"exaone_moe", "glm4_moe", "dots1", "hy_v3"})
    says(family, "topk_method", R"("greedy")", "`greedy`, supported is noaux_tc");
  says("minimax_m2", "scoring_func", R"("softmax")", "`softmax`, supported is sigmoid");
  says("ernie4_5_moe", "moe_gate_act", R"("sigmoid")", "`sigmoid`, supported is softmax");
  says("ernie4_5_moe", "moe_norm_gate_logits", "false", "false, which is not supported");
  says("hunyuan_v1_moe", "norm_topk_prob", "false", "false, which is not supported");
  says("kimi_linear", "moe_router_activation_func", R"("softmax")", "`softmax`, supported is sigmoid");
  says("kimi_linear", "mla_use_nope", "false", "false, which is not supported");
}

TEST_CASE("Adapters' rows of q and k stand as the family's own do in its folders") {
  const auto target = [](const char* family, const char* more) { return products_of(config_of_family(family, more)); };
  for (const auto& [family, more] :
       {std::pair("cohere2_moe", R"("first_k_dense_replace":6)"),
        std::pair("gptj", R"("n_embd":16,"n_layer":6,"n_head":4,"rotary_dim":4)"), std::pair("cohere", "")}) {
    CAPTURE(family);
    CHECK(target(family, more).family_pairs);
    CHECK(target(family, more).pair_order == std::vector<std::uint32_t>{0, 2, 1, 3});
  }
  CHECK(target("cohere", "").gates.empty());
  const auto gated = target("afmoe", R"("num_key_value_heads":2)"); // whose gate follows q, k and v
  REQUIRE(!gated.gates.empty());
  CHECK(gated.gates.front() == gated.layers.front()[0].outputs);
  const auto turned = target("nanochat", ""); // the other way round
  CHECK_FALSE(turned.family_pairs);
  CHECK(turned.half_order == std::vector<std::uint32_t>{2, 3, 0, 1});
  CHECK(target("hy_v3", R"("num_key_value_heads":2)").half_order.empty());
}

TEST_CASE("Command A's mixture: dense layers and the others alternate windows by themselves") {
  const auto alternating = config_of_family("cohere2_moe", R"("sliding_window":9,"first_k_dense_replace":2,
"prefix_dense_sliding_window_pattern":2,"sliding_window_pattern":3)");
  CHECK(alternating.windows == std::vector<int>{9, 0, 9, 9, 0, 9});
  CHECK(alternating.unrotated == std::vector<bool>{false, true, false, false, true, false});
  const auto plain = config_of_family("cohere2_moe", R"("sliding_window":9,"first_k_dense_replace":1)");
  CHECK(plain.windows == std::vector<int>{0, 9, 9, 9, 0, 9});
  CHECK(plain.unrotated == std::vector<bool>{false, false, false, false, true, false});
}

TEST_CASE("Families of late 2026, and older ones: what absent keys mean, and what is refused") {
  const auto biases = config_of_family("internlm3", R"("num_key_value_heads":2,"qkv_bias":true,"bias":false)");
  CHECK(biases.qkv_bias);
  CHECK_FALSE(biases.o_bias);
  CHECK_FALSE(biases.mlp_bias);
  const auto muse = config_of_family("muse_glimmer_text", R"("sliding_window":9,"num_key_value_heads":2)");
  CHECK(muse.windows == std::vector<int>{9, 0, 9, 9, 9, 0});
  CHECK(muse.unrotated == std::vector<bool>{false, true, false, false, false, true});
  const std::string swa = R"("sliding_window":9,"num_key_value_heads":2,"layer_rope_theta":)";
  const auto granite = config_of_family("granite_swa", swa + "[0,100,100,100,5000,100]");
  CHECK(granite.windows == std::vector<int>{0, 9, 9, 9, 0, 9});
  CHECK(granite.unrotated == std::vector<bool>{true, false, false, false, false, false});
  CHECK(granite.rope.theta == 5000);
  REQUIRE(granite.local_rope);
  CHECK(granite.local_rope->theta == 100);
  CHECK_FALSE(config_of_family("granite_swa", swa + "[7,7,7,7,7,7]").local_rope);
  CHECK(
    refusal_of_later("granite_swa", swa + "[0,100,200,100,0,100]") ==
    "config.json: `layer_rope_theta` must hold 0 or numbers above 1, of which layers with a window share one, and so "
    "do the others");
  CHECK(refusal_of_later("granite_swa", swa + "[100]") ==
        "config.json: `layer_rope_theta` must hold 6 numbers, found 1");
  const auto lfm3 = config_of_family("lfm3", R"("num_key_value_heads":2,"head_dim":8,"sliding_window":9)");
  CHECK(lfm3.windows == std::vector<int>{0, 0, 0, 0, 9, 0});
  CHECK(lfm3.parts_of(2).attention);
  CHECK_FALSE(lfm3.parts_of(0).attention);
  CHECK(lfm3.rope.type == rope_type::proportional);
  CHECK(lfm3.attention_gate);
  const std::string mpt = R"("d_model":16,"n_layers":2,"n_heads":4,)";
  CHECK(config_of_family("mpt", mpt + R"("attn_config":{"clip_qkv":6})").qkv_clip == 6);
  CHECK(refusal_of_later("mpt", mpt + R"("logit_scale":0.5)") ==
        "config.json: `logit_scale` is 0.5, supported is null");
  CHECK(refusal_of_later("mpt", mpt + R"("attn_config":{"alibi":false})") ==
        "config.json: `attn_config`: `alibi` is false, which is not supported");
  CHECK(refusal_of_later("mpt", mpt + R"("attn_config":{"alibi_bias_max":16})") ==
        "config.json: `attn_config`: `alibi_bias_max` is 16, supported is 8");
  const auto longrope = [](const char* shorter) {
    return R"("num_key_value_heads":4,"rope_scaling":{"type":"longrope","short_factor":[1,1],"long_factor":[2,3],
"original_max_position_embeddings":16,"long_mscale":1.25,"short_mscale":)" +
      std::string(shorter) + "}";
  };
  CHECK(config_of_family("phimoe", longrope("1.25")).rope.attention_factor == 1.25);
  CHECK(refusal_of_later("phimoe", longrope("1.5")) ==
        "config.json: `rope_scaling`: `short_mscale` and `long_mscale` must be there and alike");
  CHECK(refusal_of_later("phimoe", R"("num_key_value_heads":4,"num_experts_per_tok":1)") ==
        "config.json: `num_experts_per_tok` is 1, supported is 2");
  CHECK(refusal_of_later("olmoe", R"("clip_qkv":-1)").find("`clip_qkv` must be") != std::string::npos);
}

TEST_CASE("Indexers: which layers choose positions, what the cache holds for them, and what is refused by key") {
  const std::string latent = R"("q_lora_rank":10,"kv_lora_rank":12,"qk_nope_head_dim":6,"qk_rope_head_dim":4,
"v_head_dim":10,"n_group":1,"topk_group":1,"index_head_dim":8,"index_n_heads":3)";
  const auto deepseek = config_of_family("deepseek_v32", latent);
  CHECK(deepseek.indexer == indexer_config{.heads = 3, .dim = 8, .top = 2048});
  CHECK(deepseek.indexes(5));
  CHECK(deepseek.index_layer_of(0) == 6);
  CHECK(deepseek.index_layer_of(5) == 11);
  std::vector<kernels::kv_heads_shape> layers(6, {1, 16});
  layers.resize(12, {1, 8, false});
  CHECK(kv_shape_of(deepseek, kernels::dtype::f32, 3).own == layers);
  const auto shared_of = [&](const std::string& more) {
    return config_of_family("glm_moe_dsa", latent + more).indexer.shared;
  };
  using bits = std::vector<bool>;
  CHECK(shared_of("").empty());
  CHECK(shared_of(R"(,"indexer_types":["full","shared","shared","full","full","shared"])") ==
        bits{false, true, true, false, false, true});
  CHECK(shared_of(R"(,"index_topk_pattern":"FSFSSF")") == bits{false, true, false, true, true, false});
  CHECK(shared_of(R"(,"index_topk_freq":3,"index_skip_topk_offset":2)") == bits{false, false, true, true, false, true});
  auto half = config_of_family("glm_moe_dsa", latent + R"(,"index_topk_pattern":"FSFSSF")");
  CHECK(half.index_layer_of(5) == 8);
  half.span = layer_span{2, 6, false, true};
  CHECK(half.index_layer_of(2) == 4);
  CHECK(half.index_layer_of(5) == 5);
  CHECK(kv_shape_of(half, kernels::dtype::f32, 3).layers == 6);
  const auto turns_neighbours = [&](const char* family, const std::string& more = "") {
    const auto config = config_of_family(family, latent + more);
    return std::pair(config.rope.interleaved, config.indexer.pairs);
  };
  CHECK(turns_neighbours("deepseek_v32") == std::pair(true, false));
  CHECK(turns_neighbours("glm_moe_dsa") == std::pair(true, true));
  CHECK(turns_neighbours("hy_v4") == std::pair(true, true));
  CHECK(turns_neighbours("hy_v4", R"(,"rope_interleave":false)") == std::pair(false, false)); // transformers' way
  const auto says = [&](const char* family, const std::string& more, const std::string& what) {
    CHECK(refusal_of_later(family, latent + "," + more) == "config.json: " + what);
  };
  const std::string each = " must say for each of 6 layers whether its indexer is full or shared, and the first one's "
                           "is full";
  says("glm_moe_dsa", R"("index_topk_pattern":"SFSFSF")", "`index_topk_pattern`" + each);
  says("glm_moe_dsa", R"("indexer_types":["full"])", "`indexer_types`" + each);
  says("deepseek_v32", R"("layer_types":["full_attention"])",
       "`layer_types` has `full_attention`, supported is indexed_attention for this model_type");
  const auto with = [](std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  };
  CHECK(refusal_of_later("deepseek_v32", with(latent, R"("index_head_dim":8)", R"("index_head_dim":7)")) ==
        "config.json: `index_head_dim` is 7, supported are even numbers from `qk_rope_head_dim`, 4, on");
  CHECK(refusal_of_later("deepseek_v32", with(latent, R"("q_lora_rank":10)", R"("q_lora_rank":null)")) ==
        "config.json: `q_lora_rank` is null, but an indexer's queries are made of it");
}

TEST_CASE("DeepSeek V4: kinds of layers, what the cache holds for them, and what is refused by key") {
  const std::string small = R"("head_dim":16,"n_routed_experts":4,"num_experts_per_tok":2,"o_groups":2,
"index_head_dim":8,"index_n_heads":3,"sliding_window":5,"partial_rotary_factor":0.5,"hidden_act":"silu")";
  const auto usual = config_of_family("deepseek_v4", small);
  CHECK(usual.compressed.rates == std::vector<int>{128, 128, 128, 4, 128, 4});
  CHECK(usual.compressed.indexed == std::vector<bool>{false, false, false, true, false, true});
  CHECK(usual.hashed == std::vector<bool>{true, true, true, false, false, false});
  CHECK(usual.hyper == hyper_config{.streams = 4, .passes = 20});
  CHECK(usual.residual_width() == 64);
  CHECK(usual.rope.theta == 160000);
  REQUIRE(usual.local_rope);
  CHECK(usual.local_rope->theta == 10000);
  const auto some = config_of_family("deepseek_v4",
                                     small + R"(,"compress_ratios":[0,4,128,0,4,0,0],"compress_rate_csa":8,
"num_hash_layers":0,"rope_scaling":{"type":"yarn","factor":4,"original_max_position_embeddings":64})");
  CHECK(some.compressed.rates == std::vector<int>{0, 8, 128, 0, 8, 0});
  CHECK(some.hashed.empty());
  CHECK(some.rope.attention_factor == 1);
  CHECK(some.rope_of(0).theta == 10000);
  CHECK(some.rope_of(1).theta == 160000);
  CHECK(some.index_layer_of(4) == 7);
  CHECK(some.entry_layer_of(1) == 8);
  CHECK(some.entry_layer_of(2) == 11);
  CHECK(some.entry_layer_of(4) == 13);
  std::vector<kernels::kv_heads_shape> layers(6, {1, 16, false});
  layers.resize(8, {1, 8, false});
  for (const int heads : {2, 1, 2}) {
    layers.push_back({1, 16, false});
    layers.push_back({heads, 16});
    if (heads == 2)
      layers.push_back({2, 8});
  }
  CHECK(kv_shape_of(some, kernels::dtype::f32, 3).own == layers);
  auto half = some;
  half.span = layer_span{2, 6, false, true};
  CHECK(half.entry_layer_of(2) == 5);
  CHECK(half.entry_layer_of(4) == 7);
  const auto says = [&](const std::string& more, const std::string& what) {
    auto rest = small; // keys that `more` has are not given twice
    for (const std::string key : {R"("o_groups":2,)", R"("index_head_dim":8,)"})
      if (more.starts_with(key.substr(0, key.find(':'))))
        rest.erase(rest.find(key), key.size());
    CHECK(refusal_of_later("deepseek_v4", more + "," + rest) == "config.json: " + what);
  };
  says(R"("layer_types":["full_attention"])",
       "`layer_types[0]` is `full_attention`, supported are sliding_attention, compressed_sparse_attention and "
       "heavily_compressed_attention for this model_type");
  says(R"("layer_types":["sliding_attention"])", "`layer_types` must have a value for each of 6 layers");
  says(R"("compress_ratios":[16])", "`compress_ratios` has 16, supported are 0, 4 and 128");
  says(R"("o_groups":3)",
       "`o_groups` is 3, supported are divisors of the 4 heads, with at most 4194304 numbers of `o_lora_rank` in all");
  says(R"("num_key_value_heads":2)", "`num_key_value_heads` is 2, supported is 1 for this model_type");
  says(
    R"("index_head_dim":6)",
    "`index_head_dim` is 6, supported are even numbers from the 8 on that rotate, which times `index_n_heads` are at "
    "most 4194304");
  says(R"("n_shared_experts":2)", "`n_shared_experts` is 2, supported is 1");
  says(R"("mlp_layer_types":["dense"])", "`mlp_layer_types[0]` is `dense`, supported are hash_moe and moe");
  says(R"("compress_rates":{"heavily_compressed_attention":5000})",
       "`compress_rates` has groups of 5000 tokens, supported are 4096");
}

TEST_CASE("MiniMax M3: which layers choose blocks for each KV head, in words of now and before, and what is refused") {
  const std::string words = R"("full_attention","minimax_m3_sparse","minimax_m3_sparse","full_attention",
"minimax_m3_sparse","full_attention")";
  const std::string small = R"("num_key_value_heads":2,"head_dim":8,"num_local_experts":4,"num_experts_per_tok":2,
"partial_rotary_factor":0.5,)";
  const auto now = config_of_family("minimax_m3_vl_text",
                                    small + R"("index_n_heads":2,"index_head_dim":6,"index_block_size":5,
"index_topk_blocks":3,"mlp_layer_types":["dense","sparse","sparse","sparse","sparse","sparse"],"layer_types":[)" +
                                      words + "]");
  CHECK(now.indexer ==
        indexer_config{.heads = 2, .dim = 6, .top = 15, .block = 5, .at = {false, true, true, false, true, false}});
  CHECK(now.index_layer_of(4) == 8);
  CHECK_FALSE(now.indexes(3));
  CHECK(now.ffn == 12288);
  CHECK(now.experts.ffn == 24);
  CHECK(now.experts.scale == 2);
  CHECK_FALSE(now.is_sparse(0));
  const auto before = config_of_family("minimax_m3_vl_text",
                                       small + R"("moe_layer_freq":[0,1,1,1,1,1],"sparse_attention_config":{
"sparse_num_index_heads":2,"sparse_index_dim":6,"sparse_block_size":5,"sparse_topk_blocks":3,"sparse_local_block":1,
"sparse_attention_freq":[0,1,1,0,1,0]})");
  CHECK(before == now);
  CHECK_FALSE(bool(config_of_family("minimax_m3_vl_text", small + R"("index_n_heads":9)").indexer));
  const auto says = [&](const std::string& more, const std::string& what) {
    CHECK(refusal_of_later("minimax_m3_vl_text", small + more + R"(,"layer_types":[)" + words + "]") ==
          "config.json: " + what);
  };
  says(R"("index_n_heads":4)", "`index_n_heads` is 4, supported are as many as `num_key_value_heads`, 2");
  says(R"("index_n_heads":2,"index_local_blocks":0)",
       "`index_local_blocks` is 0, supported are 1 to `index_topk_blocks`, 16");
  says(
    R"("index_n_heads":2,"index_head_dim":2)",
    "`index_head_dim` is 2, supported are even numbers from the rotated dimensions of heads on, if these are a part");
  CHECK(refusal_of_later("minimax_m3_vl_text", small + R"("layer_types":["full_attention"])") ==
        "config.json: `layer_types` must hold 6 words, found 1");
}

TEST_CASE("MiMo and Step: heads, values and rotations by kind of layer, and cut activations by layer") {
  const std::string small = R"("num_key_value_heads":1,"head_dim":8,"v_head_dim":6,"n_routed_experts":4,
"num_experts_per_tok":2,"sliding_window":9)";
  const auto mimo = config_of_family("mimo_v2_flash", small);
  CHECK(mimo.windows == std::vector<int>{0, 9, 9, 9, 9, 0});
  CHECK(mimo.kv_heads_of(0) == 1);
  CHECK(mimo.kv_heads_of(1) == 2);
  CHECK(mimo.value_dim_of(1) == 6);
  CHECK(mimo.has_sinks(1));
  CHECK_FALSE(mimo.has_sinks(0));
  CHECK(mimo.sparse == std::vector<bool>{false, true, true, true, true, true});
  CHECK(mimo.rope.dims == 2);
  REQUIRE(mimo.local_rope);
  CHECK(mimo.local_rope->theta == 10000);
  CHECK(mimo.local_rope->dims == 2);
  const auto authors = config_of_family("mimo_v2_flash",
                                        small + R"(,"hybrid_layer_pattern":[0,1,0,1,0,1],"sliding_window_size":7,
"moe_layer_freq":[0,0,1,1,1,1],"swa_num_key_value_heads":4,"swa_rope_theta":500,"routed_scaling_factor":null)");
  CHECK(authors.windows == std::vector<int>{0, 8, 0, 8, 0, 8});
  CHECK(authors.sparse == std::vector<bool>{false, false, true, true, true, true});
  CHECK(authors.kv_heads_of(1) == 4);
  CHECK(authors.local_rope->theta == 500);
  CHECK(authors.experts.scale == 1);
  CHECK(refusal_of_later("mimo_v2_flash", R"("num_key_value_heads":1,"head_dim":8,"v_head_dim":10,"n_routed_experts":4,
"num_experts_per_tok":2,"sliding_window":9)") == "config.json: `v_head_dim` is 10, supported is up to `head_dim`, 8");
  CHECK(refusal_of_later("mimo_v2_flash", small + R"(,"swa_num_key_value_heads":3)").find("`num_key_value_heads`") !=
        std::string::npos);

  const std::string step = R"("num_key_value_heads":2,"head_dim":8,"n_routed_experts":4,"num_experts_per_tok":2,
"sliding_window":9,"num_nextn_predict_layers":1,"layer_types":["full_attention","sliding_attention",
"sliding_attention","full_attention","sliding_attention","full_attention","full_attention"])";
  const auto legacy = config_of_family("step3p5", step + R"(,"attention_other_setting":{"num_attention_heads":6},
"rope_theta":[500,100,100,500,100,500,7],"partial_rotary_factors":[0.5,1,1,0.5,1,0.5,1],"moe_layers_enum":"2,3,5",
"swiglu_limits":[0,0,7,null,0,0,3],"swiglu_limits_shared":[0,0,0,0,16,0,0])");
  CHECK(legacy.windows == std::vector<int>{0, 9, 9, 0, 9, 0});
  CHECK(legacy.heads_of(0) == 4);
  CHECK(legacy.heads_of(1) == 6);
  CHECK(legacy.rope.theta == 500);
  CHECK(legacy.rope.dims == 4);
  CHECK(legacy.local_rope->theta == 100);
  CHECK(legacy.local_rope->dims == 0);
  CHECK(legacy.sparse == std::vector<bool>{false, false, true, true, false, true});
  CHECK(legacy.expert_act_of(2) == kernels::activation{kernels::activation_type::cut_swiglu, 1, 7});
  CHECK(legacy.expert_act_of(3).type == kernels::activation_type::silu);
  CHECK(legacy.act_of(4).limit == 16);
  CHECK(refusal_of_later("step3p5", step + R"(,"rope_theta":[500,100,200,500,100,500])") ==
        "config.json: `rope_theta` must be the same for all layers of a kind");
  CHECK(refusal_of_later("step3p5", step + R"(,"swiglu_limits":[1])") ==
        "config.json: `swiglu_limits` must say something for each of 6 layers, found 1");
  CHECK(refusal_of_later("step3p5", step + R"(,"moe_layers_enum":"2;3")") ==
        "config.json: `moe_layers_enum` must be numbers of layers, with commas");
}

TEST_CASE("What later families cannot do yet, or contradicts itself, is refused with the key") {
  CHECK(refusal_of_later("gemma4_text", R"("head_dim":8,"num_key_value_heads":2,"global_head_dim":4)")
          .find("global_head_dim") != std::string::npos);
  CHECK(refusal_of_later("gemma4_text", R"("head_dim":8,"num_key_value_heads":2,"num_kv_shared_layers":6)")
          .find("leaves no layer") != std::string::npos);
  CHECK(refusal_of_later("gemma4_text", R"("head_dim":8,"num_key_value_heads":2,"vocab_size_per_layer_input":7)")
          .find("vocab_size_per_layer_input") != std::string::npos);
  CHECK(
    refusal_of_later("gemma4_text", R"("head_dim":8,"num_key_value_heads":2,"per_layer_config":{"2":{"head_dim":10}})")
      .find("per_layer_config") != std::string::npos);
  const std::string gemma3n = R"("num_key_value_heads":2,"head_dim":8,"vocab_size_per_layer_input":48,)";
  CHECK(refusal_of_later("gemma3n_text", gemma3n + R"("num_kv_shared_layers":6)").find("leaves no layer") !=
        std::string::npos);
  CHECK(refusal_of_later("gemma3n_text", gemma3n + R"("num_kv_shared_layers":0,"activation_sparsity_pattern":[0.5])") ==
        "config.json: `activation_sparsity_pattern` must hold a number for each of 6 layers, found 1");
  CHECK(refusal_of_later("gemma3n_text", gemma3n + R"("num_kv_shared_layers":0,"altup_active_idx":4)")
          .find("altup_active_idx") != std::string::npos);
  CHECK(refusal_of_later("gemma3n_text",
                         gemma3n +
                           R"("num_kv_shared_layers":0,"activation_sparsity_pattern":0.5,"hidden_activation":"gelu")")
          .find("hidden_activation") != std::string::npos);
  CHECK(refusal_of_later("hunyuan_v1_moe", R"("num_experts":4,"moe_topk":[1,2])") ==
        "config.json: `moe_topk` that differs from layer to layer is not supported");
  CHECK(refusal_of_later("hunyuan_v1_moe", R"("num_experts":2,"moe_topk":3)") ==
        "config.json: `moe_topk` is 3, more than the experts, 2");
  CHECK(refusal_of_later("ernie4_5_moe", R"("num_key_value_heads":2,"use_bias":true)") ==
        "config.json: `use_bias` is true, which is not supported");
  CHECK(refusal_of_later("llama4_text", R"("num_key_value_heads":2,"no_rope_layers":[1,1])") ==
        "config.json: `no_rope_layers` must hold 6 numbers, found 2");
  CHECK(refusal_of_later("llama4_text",
                         R"("num_key_value_heads":2,"layer_types":["sliding_attention","a","b","c","d","e"])")
          .find("chunked_attention") != std::string::npos);
  CHECK(refusal_of_later("bert", R"("is_decoder":true)") ==
        "config.json: `is_decoder` is true, which is not supported");
  CHECK(refusal_of_later("bert", R"("position_embedding_type":"relative_key")") ==
        "config.json: `position_embedding_type` is `relative_key`, supported is absolute");
  CHECK(refusal_of_later("roberta", R"("max_position_embeddings":2)") ==
        "config.json: `max_position_embeddings` is 2, expected more than 2");
  CHECK(refusal_of_later("nomic_bert", R"("n_embd":16,"n_head":4,"n_layer":2,"n_inner":24,"prenorm":true)") ==
        "config.json: `prenorm` is true, which is not supported");
}
