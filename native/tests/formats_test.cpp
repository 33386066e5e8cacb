// Runtime formats of weights: what keeps a file's bits, how near the others come, what is refused.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "../src/row_codes.h"
#include "areas.h"
#include "packed_support.h"
#include "sampling_support.h"

namespace headway::test {
namespace {

constexpr std::int64_t kRows = 45, kColumns = 512;  // a tile and a part

struct Source {
  TensorType type;
  const char* name;
};

constexpr Source kQ80{TensorType::kQ8_0, "Q8_0"}, kQ40{TensorType::kQ4_0, "Q4_0"}, kQ41{TensorType::kQ4_1, "Q4_1"},
    kQ4K{TensorType::kQ4_K, "Q4_K"}, kIQ4{TensorType::kIQ4_NL, "IQ4_NL"};

// Zeros, subnormal ones, negative ones, the largest.
constexpr std::uint16_t kHalves[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x83ff, 0x0400, 0x1234,
                                     0x2a55, 0xaa55, 0x3c00, 0xbc01, 0x4321, 0x7bff, 0xfbff};

std::uint16_t half_at(const Packed& packed, std::int64_t row, std::int64_t at) {
  const PackedMatrix& matrix = packed.matrix;
  std::uint16_t half;
  std::memcpy(&half, matrix.data + row / kTileColumns * matrix.tile_bytes() + at + row % kTileColumns * 2, sizeof half);
  return half;
}

float factor_of(const Packed& packed, std::int64_t row) {
  float factor;
  std::memcpy(&factor, packed.matrix.data + row / kTileColumns * packed.matrix.tile_bytes() + row % kTileColumns * 4,
              sizeof factor);
  return factor;
}

// As the layout has it: factors, then records of scales, minima if any, integers.
std::int64_t record_at(const Packed& packed, std::int64_t group) {
  return kTileColumns * 4 + group * packed.matrix.record_bytes();
}

float scale_of(const Packed& packed, std::int64_t row, std::int64_t group) {
  return factor_of(packed, row) * half_to_float(half_at(packed, row, record_at(packed, group)));
}

std::vector<float> dequantized(TensorType type, const std::vector<std::uint8_t>& source, std::int64_t row) {
  std::vector<float> values(kColumns);
  dequantize_row(type, source.data() + row * row_bytes(type, kColumns), kColumns, values.data());
  return values;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

float greatest(const float* values, std::int64_t count) {
  float result = 0.0F;
  for (std::int64_t i = 0; i < count; ++i) result = std::max(result, std::abs(values[i]));
  return result;
}

void test_kept(Checks& checks) {
  struct Case {
    const char* mode;
    Source source;
    TileFormat format;
  };
  for (const auto& [mode, source, format] :
       {Case{"auto", kQ80, TileFormat::kInt8}, {"int8", kQ80, TileFormat::kInt8}, {"auto", kQ40, TileFormat::kInt4},
        {"int4", kQ40, TileFormat::kInt4}, {"auto", kQ41, TileFormat::kInt4Min}, {"int4", kQ41, TileFormat::kInt4Min},
        {"auto", kIQ4, TileFormat::kLevels4}, {"int4", kIQ4, TileFormat::kLevels4}}) {
    checks.run(std::string("formats: ") + mode + " keeps the bits of " + source.name, [&] {
      for (const int bias : {0, 128}) {
        std::vector<std::uint8_t> bytes = random_blocks(source.type, kRows * kColumns, kHalves, 1);
        if (source.type == TensorType::kQ8_0)  // -128 is the next case's
          for (std::size_t i = 0; i < bytes.size(); ++i)
            if (i % 34 > 1 && bytes[i] == 0x80) bytes[i] = 0x81;
        const Packed packed(checked_format(mode, 32, bias), source.type, kRows, kColumns, bytes);
        CHECK(packed.sound);
        CHECK(packed.matrix.format == format);
        for (std::int64_t row = 0; row < kRows; ++row)
          CHECK(same_bits(packed.row(row), dequantized(source.type, bytes, row)));
      }
    });
  }

  checks.run("formats: a Q8_0 row with a code of -128 is quantised anew, the others stay", [&] {
    std::vector<std::uint8_t> bytes = random_blocks(TensorType::kQ8_0, kRows * kColumns, kHalves, 2);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (i % 34 > 1 && bytes[i] == 0x80) bytes[i] = 0x7f;
    bytes[2 + 7] = 0x80;
    const Packed packed(checked_format("auto", 32, 128), TensorType::kQ8_0, kRows, kColumns, bytes);
    CHECK(packed.sound);
    for (std::int64_t row = 1; row < kRows; ++row)
      CHECK(same_bits(packed.row(row), dequantized(TensorType::kQ8_0, bytes, row)));
    const std::vector<float> got = packed.row(0), exact = dequantized(TensorType::kQ8_0, bytes, 0);
    for (std::int64_t i = 0; i < kColumns; ++i) CHECK_NEAR(got[i], exact[i], 0.5001 * double{scale_of(packed, 0, i / 32)});
  });

  checks.run("formats: Q4_K keeps its codes, its scales to 11 bits", [&] {
    for (const char* mode : {"auto", "int4"}) {
      const std::vector<std::uint8_t> bytes = random_blocks(TensorType::kQ4_K, kRows * kColumns, kHalves, 3);
      const Packed packed(checked_format(mode, 32, 0), TensorType::kQ4_K, kRows, kColumns, bytes);
      CHECK(packed.sound);
      CHECK(packed.matrix.format == TileFormat::kInt4Min);
      for (std::int64_t row = 0; row < kRows; ++row) {
        float scales[16], minima[16];
        for (int block = 0; block < 2; ++block)
          q4_k_scales(bytes.data() + (row * 2 + block) * 144, scales + block * 8, minima + block * 8);
        const double bound = std::max(greatest(scales, 16), greatest(minima, 16));
        const std::vector<float> got = packed.row(row), exact = dequantized(TensorType::kQ4_K, bytes, row);
        for (std::int64_t i = 0; i < kColumns; ++i) {
          const double span = 15.0 * std::abs(scales[i / 32]) + std::abs(minima[i / 32]);
          CHECK_NEAR(got[i], exact[i], 0x1p-10 * span + 16 * 0x1p-25 * bound);  // the latter: subnormal halves
        }
      }
    }
  });
}

void test_refused(Checks& checks) {
  checks.run("formats: halves that are infinite or no numbers are refused in every mode", [&] {
    for (const Source& source : {kQ80, kQ40, kQ41, kQ4K, kIQ4}) {
      const BlockLayout layout = layout_of(source.type);
      const std::vector<std::uint8_t> good = random_blocks(source.type, kRows * kColumns, kHalves, 4);
      for (const char* mode : {"auto", "bf16", "int8", "int4", "nf4"}) {
        const PackFormat format = checked_format(mode, 32, 0);
        CHECK(Packed(format, source.type, kRows, kColumns, good).sound);
        for (const std::uint16_t half : {0x7c00, 0xfc00, 0x7e00, 0xfe01})
          for (std::int64_t i = 0; i < layout.halves; ++i) {
            std::vector<std::uint8_t> bad = good;
            std::memcpy(bad.data() + bad.size() - layout.bytes + i * 2, &half, 2);
            CHECK(!Packed(format, source.type, kRows, kColumns, bad).sound);
          }
      }
    }
  });

  checks.run("formats: floats that are infinite, no numbers or too large are refused in every mode", [&] {
    for (const char* mode : {"auto", "bf16", "int8", "int4", "nf4"})
      for (const float value : {INFINITY, -INFINITY, std::nanf(""), 1e30F, -1e30F}) {
        std::vector<float> values(33 * 64, 0.5F);
        const PackFormat format = checked_format(mode, 32, 0);
        CHECK(Packed(format, TensorType::kF32, 33, 64, bytes_of(values)).sound);
        values.back() = value;
        CHECK(!Packed(format, TensorType::kF32, 33, 64, bytes_of(values)).sound);
      }
  });

  checks.run("formats: unknown names and sizes of groups are refused", [&] {
    CHECK_THROWS(std::invalid_argument, checked_format("int5", 32, 0));
    CHECK_THROWS(std::invalid_argument, checked_format("int8", 16, 0));
    for (const char* mode : {"auto", "int4", "nf4"})
      for (const int group : {64, 128}) CHECK_THROWS(std::invalid_argument, checked_format(mode, group, 0));
  });
}

// Rows of zeros, tiny, huge, mixed within a row and within a group, far from zero, and ordinary ones.
std::vector<float> trying_rows() {
  std::vector<float> values = random_logits(kRows * kColumns, 1.0F, 6);
  const auto each = [&values](std::int64_t row, auto change) {
    for (std::int64_t i = 0; i < kColumns; ++i) values[row * kColumns + i] = change(i, values[row * kColumns + i]);
  };
  each(0, [](auto, float) { return 0.0F; });
  each(1, [](auto, float v) { return v * 1e-31F; });
  each(2, [](auto, float v) { return v * 1e29F; });
  each(3, [](auto i, float v) { return v * std::pow(10.0F, static_cast<float>(i / 32) - 8.0F); });
  each(4, [](auto i, float v) { return i % 32 == 5 ? 1e29F * v : 1e-31F * v; });
  each(5, [](auto, float v) { return 100.0F + 0.01F * v; });
  each(6, [](auto, float v) { return -100.0F - 0.01F * v; });
  each(7, [](auto i, float v) { return i / 32 % 2 == 0 ? 0.0F : v; });
  each(8, [](auto, float) { return -0.25F; });
  each(9, [](auto, float v) { return v * 1e-27F; });
  return values;
}

void check_floats(Checks& checks, const PackFormat& format, const std::vector<float>& values) {
  const Packed packed(format, TensorType::kF32, kRows, kColumns, bytes_of(values));
  const int group = format.group_size;
  CHECK(packed.sound);
  for (std::int64_t row = 0; row < kRows; ++row) {
    const float* exact = values.data() + row * kColumns;
    const std::vector<float> got = packed.row(row);
    const double bound = greatest(exact, kColumns);
    if (bound < 1e-30) {
      CHECK(got == std::vector<float>(kColumns, 0.0F));
      continue;
    }
    for (std::int64_t begin = 0; begin < kColumns; begin += group) {
      const auto [least, most] = std::minmax_element(exact + begin, exact + begin + group);
      const double scale = scale_of(packed, row, begin / group), top = greatest(exact + begin, group);
      const double grain = 0x1p-23 * bound;  // what scales and minima below the row's greatest may be off by
      switch (packed.matrix.format) {
        case TileFormat::kInt8: {
          const double ideal = top / 127.0;
          CHECK(scale >= ideal * (1 - 1e-6));
          CHECK(scale <= ideal * (1 + 0x1p-10 + 1e-6) + grain / 127.0);
          for (std::int64_t i = begin; i < begin + group; ++i) CHECK_NEAR(got[i], exact[i], 0.5001 * scale);
          break;
        }
        case TileFormat::kInt4Min: {
          const double span = double{*most} - double{*least} + 0x1p-10 * std::abs(*least) + grain;
          CHECK(scale <= span / 15.0 * (1 + 0x1p-10 + 1e-6) + grain);
          for (std::int64_t i = begin; i < begin + group; ++i)
            CHECK_NEAR(got[i], exact[i], 0.5 * scale + 1e-6 * (scale + std::abs(*least)));
          break;
        }
        default:
          CHECK_NEAR(scale, top / 127.0, 0x1p-11 * top / 127.0 + grain / 127.0);
          for (std::int64_t i = begin; i < begin + group; ++i) {
            double nearest = std::numeric_limits<double>::infinity();
            for (int code = 0; code < 16; ++code)
              nearest = std::min(nearest, std::abs(scale * packed.matrix.levels[code] - double{exact[i]}));
            CHECK_NEAR(std::abs(double{got[i]} - double{exact[i]}), nearest, 1e-4 * scale);
          }
      }
    }
  }
}

void test_floats(Checks& checks) {
  struct Case {
    const char* mode;
    int group = 32;
  };
  for (const auto& [mode, group] : {Case{"int8"}, {"int8", 64}, {"int8", 128}, {"int4"}, {"nf4"}})
    checks.run(std::string("formats: floats to ") + mode + ", groups of " + std::to_string(group) + ", within half a step",
               [&] { check_floats(checks, checked_format(mode, group, 0), trying_rows()); });

  checks.run("formats: int8 takes the least scale of 11 bits that holds a group", [&] {
    const std::vector<float> values = trying_rows();
    const Packed packed(checked_format("int8", 32, 0), TensorType::kF32, kRows, kColumns, bytes_of(values));
    for (std::int64_t row = 10; row < kRows; ++row)
      for (std::int64_t g = 0; g < kColumns / 32; ++g) {
        const float wanted = greatest(values.data() + row * kColumns + g * 32, 32) / 127.0F;
        const std::uint16_t half = half_at(packed, row, record_at(packed, g));
        CHECK(half_to_float(half) * factor_of(packed, row) >= wanted);
        CHECK(half_to_float(static_cast<std::uint16_t>(half - 1)) * factor_of(packed, row) < wanted);
      }
  });

  checks.run("formats: columns that are missing and the end of K are zero", [&] {
    for (const char* mode : {"int8", "int4", "nf4"}) {
      const Packed packed(checked_format(mode, 32, 128), TensorType::kF32, 3, 40, bytes_of(random_logits(120, 1.0F, 7)));
      CHECK_EQ(packed.matrix.padded_k(), 64);
      for (std::int64_t row = 3; row < kTileColumns; ++row) CHECK_EQ(factor_of(packed, row), 0.0F);
    }
  });
}

void test_halves(Checks& checks) {
  checks.run("formats: every half survives the way through float", [&] {
    for (std::uint32_t half = 0; half < 0x10000; ++half) {
      if ((half & 0x7c00U) == 0x7c00U) continue;
      CHECK_EQ(float_to_half(half_to_float(static_cast<std::uint16_t>(half))), half);
    }
  });

  checks.run("formats: halves round to the nearest, ties to even", [&] {
    struct Case {
      float value;
      std::uint16_t half;
    };
    for (const auto& [value, half] :
         {Case{1.0F + 0x1p-11F, 0x3c00}, {1.0F + 0x3p-11F, 0x3c02}, {1.0F + 0x1.002p-11F, 0x3c01}, {65519.0F, 0x7bff},
          {0x1p-25F, 0x0000}, {0x1.002p-25F, 0x0001}, {0x3p-25F, 0x0002}, {0x1.ffep-15F, 0x0400}, {0x1p-40F, 0x0000},
          {2.0F - 0x1p-12F, 0x4000}}) {
      CHECK_EQ(float_to_half(value), half);
      CHECK_EQ(float_to_half(-value), half | 0x8000);
    }
  });
}

}  // namespace

void test_formats(Checks& checks) {
  test_kept(checks);
  test_refused(checks);
  test_floats(checks);
  test_halves(checks);
}

}  // namespace headway::test
