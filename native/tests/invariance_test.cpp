// Batch invariance: the same tokens give the same bits, in logits and in the cache, however the work is arranged.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "areas.h"
#include "step_support.h"

namespace headway::test {
namespace {

constexpr std::size_t kVocab = 101;

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// What every arrangement of one sequence must reproduce.
struct Expected {
  Tokens tokens;
  std::vector<float> logits;         // (length, vocab)
  std::vector<std::uint8_t> blocks;  // of the tokens

  Expected(const Variant& variant, std::size_t length, std::uint64_t seed, const ModelShape& shape = tiny_shape())
      : tokens(random_tokens(static_cast<int>(length), seed)) {
    Bench bench(variant, 128, shape);
    const Tokens table = block_range(0, tokens.size());
    logits = bench.logits({{tokens, 0, table}});
    blocks = bench.block_bytes(table);
  }
  std::size_t num_blocks() const { return block_range(0, tokens.size()).size(); }
};

struct Arrangement {
  int num_threads;
  std::size_t chunk;  // tokens a step; one at a time only on one thread: barriers are slow where cores are few
};

void test_chunks_and_threads(Checks& checks, Variant variant, const NamedShape& named) {
  checks.run("invariance: chunks and threads, " + variant.name() + ", " + named.name, [&] {
    // Two spans of attention, three on one instruction set; whole blocks, because all their bytes are compared.
    const std::size_t length = variant.isa == available_isas().back() ? 528 : 272;
    const Expected expected(variant, length, 1, named.shape);
    CHECK_EQ(expected.logits.size(), length * kVocab);
    for (const Arrangement& arrangement : {Arrangement{1, 1}, {1, 16}, {1, 37}, {2, 37}, {2, length}, {4, 200}}) {
      variant.num_threads = arrangement.num_threads;
      Bench bench(variant, 128, named.shape);
      // Blocks out of order, and full of something else before.
      Tokens table = block_range(static_cast<std::int32_t>(arrangement.chunk % 80), length);
      std::swap(table[0], table[9]);
      std::swap(table[3], table[16]);
      bench.logits({{random_tokens(static_cast<int>(length), 2), 0, table}});
      CHECK(same_bits(bench.logits_in_chunks(expected.tokens, table, arrangement.chunk), expected.logits));
      CHECK(bench.block_bytes(table) == expected.blocks);
    }
    // Decoding over a long context with several threads, where spans of one row go to different workers.
    for (const int num_threads : {2, 4}) {
      const std::size_t prompt = length - 6;
      variant.num_threads = num_threads;
      Bench bench(variant, 128, named.shape);
      const Tokens table = block_range(0, length);
      bench.logits({{Tokens(expected.tokens.begin(), expected.tokens.begin() + prompt), 0, table}});
      for (std::size_t i = prompt; i < length; ++i) {
        const std::vector<float> got = bench.logits({{{expected.tokens[i]}, static_cast<std::int32_t>(i), table}});
        CHECK(std::equal(got.begin(), got.end(), expected.logits.begin() + static_cast<std::ptrdiff_t>(i * kVocab)));
      }
      CHECK(bench.block_bytes(table) == expected.blocks);
    }
  });
}

void test_batch(Checks& checks, Variant variant, const NamedShape& named) {
  checks.run("invariance: in a batch of 16, " + variant.name() + ", " + named.name, [&] {
    constexpr int kSequences = 16;
    std::vector<Expected> expected;
    std::vector<Tokens> tables;
    std::int32_t next_block = 0;
    for (int s = 0; s < kSequences; ++s) {
      const auto length = static_cast<std::size_t>(s == 5 ? 300 : 20 + 3 * s);  // one across spans
      expected.emplace_back(variant, length, static_cast<std::uint64_t>(10 + s), named.shape);
      tables.push_back(block_range(next_block, length));
      next_block += static_cast<std::int32_t>(tables.back().size());
    }
    variant.num_threads = 2;
    Bench bench(variant, 128, named.shape);
    std::vector<std::size_t> done(kSequences, 0);
    for (int round = 0; round < 150; ++round) {  // each step another mix of decoding and prefill
      std::vector<Part> parts;
      std::vector<int> members;
      for (int s = 0; s < kSequences; ++s) {
        const std::size_t left = expected[s].tokens.size() - done[s];
        const std::size_t count = std::min(left, static_cast<std::size_t>((s + round) % 4 == 0 ? 1 : 9 + 7 * (s % 5)));
        if (count == 0 || (s + round) % 7 == 6) continue;
        const auto first = expected[s].tokens.begin() + static_cast<std::ptrdiff_t>(done[s]);
        const Tokens tokens(first, first + static_cast<std::ptrdiff_t>(count));
        parts.push_back({tokens, static_cast<std::int32_t>(done[s]), tables[s]});
        members.push_back(s);
      }
      if (parts.empty()) continue;
      const std::vector<float> logits = bench.logits(parts);
      std::size_t row = 0;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const int s = members[i];
        const std::size_t count = parts[i].tokens.size() * kVocab;
        const float* wanted = expected[s].logits.data() + done[s] * kVocab;
        CHECK(std::memcmp(logits.data() + row * kVocab, wanted, count * sizeof(float)) == 0);
        row += parts[i].tokens.size();
        done[s] += parts[i].tokens.size();
      }
    }
    for (int s = 0; s < kSequences; ++s) {
      CHECK_EQ(done[s], expected[s].tokens.size());
      CHECK(bench.block_bytes(tables[s]) == expected[s].blocks);
    }
  });
}

void test_shared_prefix(Checks& checks, const Variant& variant) {
  checks.run("invariance: blocks shared, copied, saved and restored, " + variant.name(), [&] {
    const Expected expected(variant, 60, 3);
    Bench bench(variant);
    const Tokens first = block_range(0, 60);
    bench.logits({{Tokens(expected.tokens.begin(), expected.tokens.begin() + 40), 0, first}});
    const std::vector<float> rest(expected.logits.begin() + 40 * kVocab, expected.logits.end());
    const Tokens tail(expected.tokens.begin() + 40, expected.tokens.end());
    // Another sequence shares blocks 0 and 1, which are full, and owns a copy of block 2.
    bench.cache->copy_block(2, 10);
    CHECK(same_bits(bench.logits({{tail, 40, {0, 1, 10, 11}}}), rest));
    // A third gets all three back from bytes, in another cache.
    Bench other(variant);
    for (const std::int32_t block : {0, 1, 2}) other.cache->write_block(block + 50, bench.block_bytes({block}));
    CHECK(same_bits(other.logits({{tail, 40, {50, 51, 52, 53}}}), rest));
    CHECK(other.block_bytes({50, 51, 52, 53}) == expected.blocks);
  });
}

// Paged, chunked and contiguous memory, and a size that divides no span.
void test_block_sizes(Checks& checks, Variant variant) {
  checks.run("invariance: block sizes, " + variant.name(), [&] {
    const ModelShape shape = tiny_shape();
    constexpr std::size_t kLength = 300, kPrompt = 270;
    const Expected expected(variant, kLength, 7);
    const auto begin = expected.tokens.begin();
    for (const int block_size : {48, 256, 608}) {
      for (const int num_threads : {1, 2}) {
        variant.num_threads = num_threads;
        Bench bench(variant, 20, shape, block_size);
        Tokens table = block_range(3, kLength, block_size);
        std::reverse(table.begin(), table.end());
        const Tokens prompt(begin, begin + kPrompt), rest(begin + kPrompt, expected.tokens.end());
        std::vector<float> logits = bench.logits_in_chunks(prompt, table, 77);
        for (std::int32_t& block : table) {  // moved on the way
          bench.cache->copy_block(block, block + 8);
          block += 8;
        }
        const std::vector<float> tail = bench.logits({{rest, kPrompt, table}});
        logits.insert(logits.end(), tail.begin(), tail.end());
        CHECK(same_bits(logits, expected.logits));
        const std::size_t part_bytes = expected.blocks.size() / expected.num_blocks() / shape.num_layers / shape.num_kv_heads;
        for (std::size_t position = 0; position + kPartTokens <= kLength; position += kPartTokens)
          for (int layer = 0; layer < shape.num_layers; ++layer)
            for (int head = 0; head < shape.num_kv_heads; ++head) {
              const std::size_t index = (position / kPartTokens * shape.num_layers + layer) * shape.num_kv_heads + head;
              const std::uint8_t* part = bench.cache->part_of(table.data(), static_cast<int>(position), layer, head);
              CHECK(std::memcmp(part, expected.blocks.data() + index * part_bytes, part_bytes) == 0);
            }
      }
    }
  });
}

// What old blocks, a neighbour's rows or an earlier step's rows hold must reach nobody, be it NaN.
void test_poison(Checks& checks, const Variant& variant) {
  checks.run("invariance: beside and after NaN, " + variant.name(), [&] {
    for (const int hidden_size : {96, 72}) {  // whole tiles, and a last one that is padded
      ModelShape shape = tiny_shape();
      shape.hidden_size = hidden_size;
      const Tokens tokens = random_tokens(40, 4);
      const Part clean{tokens, 0, block_range(0, tokens.size())};
      const Part poisoned{random_tokens(40, 5), 16, block_range(4, 56)};  // its context is NaN
      Bench fresh(variant, 8, shape), bench(variant, 8, shape);
      const std::vector<float> expected = fresh.logits({clean});
      const auto spoil_blocks = [&bench] {
        const std::vector<std::uint8_t> bytes(static_cast<std::size_t>(bench.cache->block_bytes()), 0xff);
        for (std::int32_t block = 0; block < bench.cache->num_blocks(); ++block) bench.cache->write_block(block, bytes);
      };
      spoil_blocks();
      const std::vector<float> both = bench.logits({poisoned, clean});
      const std::size_t num_poisoned = poisoned.tokens.size() * kVocab;
      if (variant.weights == "bf16") CHECK(std::isnan(both.front()));  // int8 rounds NaN away
      CHECK(std::memcmp(both.data() + num_poisoned, expected.data(), expected.size() * sizeof(float)) == 0);
      spoil_blocks();
      CHECK(same_bits(bench.logits({clean}), expected));
      CHECK(bench.block_bytes({0, 1}) == fresh.block_bytes({0, 1}));  // the third is not full
    }
  });
}

// Positions that have left every row's window are not read: whoever owned the block may have spoilt it.
void test_left_window(Checks& checks, Variant variant) {
  checks.run("invariance: behind the window lies NaN, " + variant.name(), [&] {
    ModelShape shape = tiny_shape();
    shape.layers = {{0, 40}, {0, 11}};
    const Expected expected(variant, 320, 6, shape);
    for (const int num_threads : {1, 3}) {
      variant.num_threads = num_threads;
      for (const std::size_t prompt : {300U, 258U, 319U}) {
        Bench bench(variant, 32, shape);
        const Tokens table = block_range(0, 320);
        const auto begin = expected.tokens.begin();
        bench.logits({{Tokens(begin, begin + static_cast<std::ptrdiff_t>(prompt)), 0, table}});
        const std::vector<float> nan(static_cast<std::size_t>(shape.head_dim), std::nanf(""));
        for (std::int32_t position = 0; position < static_cast<std::int32_t>(prompt) - 39; ++position)
          for (int layer = 0; layer < 2; ++layer)
            for (int head = 0; head < shape.num_kv_heads; ++head)
              bench.cache->store(bench.cache->part_of(table.data(), position, layer, head), position % kPartTokens,
                                 nan.data(), nan.data());
        const Tokens rest(begin + static_cast<std::ptrdiff_t>(prompt), expected.tokens.end());
        const std::vector<float> got = bench.logits({{rest, static_cast<std::int32_t>(prompt), table}});
        const std::vector<float> wanted(expected.logits.begin() + static_cast<std::ptrdiff_t>(prompt * kVocab),
                                        expected.logits.end());
        CHECK(same_bits(got, wanted));
      }
    }
  });
}

}  // namespace

void test_invariance(Checks& checks) {
  for (const Variant& variant : all_variants()) {
    test_chunks_and_threads(checks, variant, {"llama", tiny_shape()});
    test_batch(checks, variant, {"llama", tiny_shape()});
    const bool last = variant.isa == available_isas().back() && variant.group_size == 128;
    if (last || variant.weights == variant.kv || variant.weights == "auto" || variant.activations == "bf16") {
      for (const NamedShape& other : other_shapes()) {
        test_chunks_and_threads(checks, variant, other);
        test_batch(checks, variant, other);
      }
    }
    test_left_window(checks, variant);
    test_shared_prefix(checks, variant);
    test_block_sizes(checks, variant);
    test_poison(checks, variant);
  }
}

}  // namespace headway::test
