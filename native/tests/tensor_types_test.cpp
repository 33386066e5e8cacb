#include "../src/tensor_types.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "areas.h"

namespace headway::test {
namespace {

void append_half(std::vector<std::uint8_t>& bytes, std::uint16_t half) {
  bytes.push_back(static_cast<std::uint8_t>(half & 255));
  bytes.push_back(static_cast<std::uint8_t>(half >> 8));
}

std::vector<float> dequantized(TensorType type, const std::vector<std::uint8_t>& bytes, std::int64_t columns) {
  std::vector<std::uint8_t> shifted(bytes.size() + 1);  // a row may lie at any address
  std::copy(bytes.begin(), bytes.end(), shifted.begin() + 1);
  std::vector<float> values(static_cast<std::size_t>(columns));
  dequantize_row(type, shifted.data() + 1, columns, values.data());
  return values;
}

constexpr std::uint16_t kHalfOne = 0x3C00, kHalfMinusTwo = 0xC000, kHalfQuarter = 0x3400;

}  // namespace

void test_tensor_types(Checks& checks) {
  checks.run("tensor types: bytes of a row", [&] {
    CHECK_EQ(row_bytes(TensorType::kF32, 3), 12);
    CHECK_EQ(row_bytes(TensorType::kF16, 3), 6);
    CHECK_EQ(row_bytes(TensorType::kBF16, 3), 6);
    CHECK_EQ(row_bytes(TensorType::kQ8_0, 64), 68);
    CHECK_EQ(row_bytes(TensorType::kQ4_0, 64), 36);
    CHECK_EQ(row_bytes(TensorType::kQ4_1, 64), 40);
    CHECK_EQ(row_bytes(TensorType::kQ5_0, 64), 44);
    CHECK_EQ(row_bytes(TensorType::kQ5_1, 64), 48);
    CHECK_EQ(row_bytes(TensorType::kIQ4_NL, 64), 36);
    CHECK_EQ(row_bytes(TensorType::kQ4_K, 512), 288);
    CHECK_EQ(row_bytes(TensorType::kQ5_K, 512), 352);
    CHECK_EQ(row_bytes(TensorType::kQ6_K, 512), 420);
    CHECK_THROWS(std::invalid_argument, row_bytes(TensorType::kQ8_0, 33));
    CHECK_THROWS(std::invalid_argument, row_bytes(TensorType::kQ4_K, 128));
    CHECK_THROWS(std::invalid_argument, row_bytes(static_cast<TensorType>(9), 32));
  });

  checks.run("tensor types: halves, the smallest and the largest too", [&] {
    std::vector<std::uint8_t> bytes;
    for (const std::uint16_t half : {0x0000, 0x8000, 0x3C00, 0xC000, 0x3555, 0x7BFF, 0x0001, 0x83FF, 0x0400, 0x7C00}) {
      append_half(bytes, half);
    }
    const std::vector<float> values = dequantized(TensorType::kF16, bytes, 10);
    const float expected[] = {0.0F, -0.0F, 1.0F, -2.0F, 0x1.554p-2F, 65504.0F, 0x1p-24F, -0x1.ff8p-15F, 0x1p-14F,
                              std::numeric_limits<float>::infinity()};
    for (int i = 0; i < 10; ++i) {
      CHECK_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(expected[i]));
    }
  });

  checks.run("tensor types: Q8_0 blocks", [&] {
    std::vector<std::uint8_t> bytes;
    append_half(bytes, kHalfQuarter);
    for (int i = 0; i < 32; ++i) bytes.push_back(static_cast<std::uint8_t>(i == 31 ? -127 : i - 16));
    append_half(bytes, kHalfMinusTwo);
    for (int i = 0; i < 32; ++i) bytes.push_back(3);
    const std::vector<float> values = dequantized(TensorType::kQ8_0, bytes, 64);
    CHECK_EQ(values[0], -4.0F);
    CHECK_EQ(values[18], 0.5F);
    CHECK_EQ(values[31], -31.75F);
    CHECK_EQ(values[32], -6.0F);
  });

  checks.run("tensor types: Q4_0 and Q4_1 blocks hold the first half in low nibbles", [&] {
    std::vector<std::uint8_t> bytes;
    append_half(bytes, kHalfQuarter);
    for (int i = 0; i < 16; ++i) bytes.push_back(static_cast<std::uint8_t>(i | ((15 - i) << 4)));
    const std::vector<float> symmetric = dequantized(TensorType::kQ4_0, bytes, 32);
    bytes.insert(bytes.begin() + 2, {0, 0});
    bytes[2] = kHalfOne & 255;
    bytes[3] = kHalfOne >> 8;
    const std::vector<float> shifted = dequantized(TensorType::kQ4_1, bytes, 32);
    for (int i = 0; i < 16; ++i) {
      CHECK_EQ(symmetric[i], 0.25F * static_cast<float>(i - 8));
      CHECK_EQ(symmetric[i + 16], 0.25F * static_cast<float>(7 - i));
      CHECK_EQ(shifted[i], 0.25F * static_cast<float>(i) + 1.0F);
      CHECK_EQ(shifted[i + 16], 0.25F * static_cast<float>(15 - i) + 1.0F);
    }
  });

  checks.run("tensor types: fifth bits, one per value in order", [&] {
    std::vector<std::uint8_t> bytes;
    append_half(bytes, kHalfQuarter);
    bytes.insert(bytes.end(), {0x01, 0x00, 0x02, 0x80});
    for (int i = 0; i < 16; ++i) bytes.push_back(static_cast<std::uint8_t>(i | ((15 - i) << 4)));
    const std::vector<float> symmetric = dequantized(TensorType::kQ5_0, bytes, 32);
    bytes.insert(bytes.begin() + 2, {kHalfOne & 255, kHalfOne >> 8});
    const std::vector<float> shifted = dequantized(TensorType::kQ5_1, bytes, 32);
    for (int i = 0; i < 32; ++i) {
      const int code = (i < 16 ? i : 31 - i) + (i == 0 || i == 17 || i == 31 ? 16 : 0);
      CHECK_EQ(symmetric[i], 0.25F * static_cast<float>(code - 16));
      CHECK_EQ(shifted[i], 0.25F * static_cast<float>(code) + 1.0F);
    }
  });

  checks.run("tensor types: IQ4_NL looks its codes up", [&] {
    std::vector<std::uint8_t> bytes;
    append_half(bytes, kHalfQuarter);
    for (int i = 0; i < 16; ++i) bytes.push_back(static_cast<std::uint8_t>(i | ((15 - i) << 4)));
    const std::vector<float> values = dequantized(TensorType::kIQ4_NL, bytes, 32);
    CHECK_EQ(values[0], -31.75F);
    CHECK_EQ(values[8], 0.25F);
    CHECK_EQ(values[15], 28.25F);
    CHECK_EQ(values[16], 28.25F);
    CHECK_EQ(values[31], -31.75F);
  });

  checks.run("tensor types: Q4_K and Q5_K take six bits from two places for the last four scales", [&] {
    std::vector<std::uint8_t> bytes;
    append_half(bytes, kHalfQuarter);
    append_half(bytes, kHalfOne);
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<std::uint8_t>((i + 1) | (2 << 6)));  // scales 1-4
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<std::uint8_t>((i + 5) | (1 << 6)));  // minima 5-8
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<std::uint8_t>(i | ((15 - i) << 4)));
    std::vector<std::uint8_t> with_fifth = bytes;
    for (int i = 0; i < 32; ++i) with_fifth.push_back(static_cast<std::uint8_t>(1 << (i % 8)));
    for (int i = 0; i < 128; ++i) {
      bytes.push_back(0x73);
      with_fifth.push_back(0x73);
    }
    const std::vector<float> four = dequantized(TensorType::kQ4_K, bytes, 256);
    const std::vector<float> five = dequantized(TensorType::kQ5_K, with_fifth, 256);
    for (int i = 0; i < 256; ++i) {
      const int part = i / 32;
      const int scale = part < 4 ? part + 1 : 32 + (part - 4);
      const int minimum = part < 4 ? part + 5 : 16 + 15 - (part - 4);
      const int code = part % 2 == 0 ? 3 : 7;
      const auto want = [&](int c) { return 0.25F * static_cast<float>(scale * c) - static_cast<float>(minimum); };
      CHECK_EQ(four[i], want(code));
      CHECK_EQ(five[i], want(code + (i % 8 == part ? 16 : 0)));
    }
  });

  checks.run("tensor types: Q6_K spreads a code over nibbles and bit pairs", [&] {
    std::vector<std::uint8_t> bytes(210);
    const auto put = [&](int index, int code) {  // where ggml's format keeps the code of value `index`
      const int half = index / 128, part = index % 128 / 32, lane = index % 32;
      bytes[half * 64 + part % 2 * 32 + lane] |= static_cast<std::uint8_t>((code & 15) << (part / 2 * 4));
      bytes[128 + half * 32 + lane] |= static_cast<std::uint8_t>((code >> 4) << (part * 2));
    };
    for (int i = 0; i < 256; ++i) put(i, i * 7 % 64);
    for (int i = 0; i < 16; ++i) bytes[192 + i] = static_cast<std::uint8_t>(i - 8);
    bytes[208] = kHalfQuarter & 255;
    bytes[209] = kHalfQuarter >> 8;
    const std::vector<float> values = dequantized(TensorType::kQ6_K, bytes, 256);
    for (int i = 0; i < 256; ++i)
      CHECK_EQ(values[i], 0.25F * static_cast<float>(i / 16 - 8) * static_cast<float>(i * 7 % 64 - 32));
  });

  checks.run("tensor types: bf16 rounds to the nearest, ties to even", [&] {
    CHECK_EQ(float_to_bf16(1.0F), 0x3F80);
    CHECK_EQ(float_to_bf16(std::bit_cast<float>(0x3F808000U)), 0x3F80);  // a tie, even below
    CHECK_EQ(float_to_bf16(std::bit_cast<float>(0x3F818000U)), 0x3F82);  // a tie, even above
    CHECK_EQ(float_to_bf16(std::bit_cast<float>(0x3F808001U)), 0x3F81);
    CHECK_EQ(float_to_bf16(std::numeric_limits<float>::infinity()), 0x7F80);
    CHECK_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7F80);
    CHECK(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0x7F800001U)))));
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const float value = bf16_to_float(static_cast<std::uint16_t>(bits));
      if (!std::isnan(value)) CHECK_EQ(float_to_bf16(value), bits);
    }
  });
}

}  // namespace headway::test
