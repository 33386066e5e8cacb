// Every instruction set's kernels against plain double arithmetic, and each row alone against the same row among others.
#include "../src/kernels/kernels.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "areas.h"
#include "model_support.h"
#include "packed_support.h"
#include "sampling_support.h"

namespace headway::test {
namespace {

// Rows of activations in every form, with padding.
struct Rows {
  std::int64_t stride, scale_stride;
  std::vector<float> values;
  std::vector<std::uint16_t> halves;
  std::vector<std::int8_t> quantized;
  std::vector<float> scales, scaled_sums;
  std::vector<std::int32_t> sums;

  bool has_halves;

  Rows(const Kernels& kernels, const std::vector<std::vector<float>>& rows, int group_size, bool wants_halves = false)
      : has_halves(wants_halves) {
    stride = round_up(static_cast<std::int64_t>(rows[0].size()), kRowAlign);
    scale_stride = stride / 32;
    values.assign(rows.size() * stride, 0.0F);
    halves.assign(rows.size() * stride, 0);
    quantized.assign(rows.size() * stride, 0);
    scales.assign(rows.size() * scale_stride, 0.0F);
    scaled_sums.assign(rows.size() * scale_stride, 0.0F);
    sums.assign(rows.size() * scale_stride, 0);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      std::copy(rows[r].begin(), rows[r].end(), values.begin() + static_cast<std::ptrdiff_t>(r * stride));
      kernels.quantize(values.data() + r * stride, static_cast<int>(stride), group_size,
                       {quantized.data() + r * stride, scales.data() + r * scale_stride, sums.data() + r * scale_stride,
                        scaled_sums.data() + r * scale_stride});
      if (has_halves)
        kernels.round_to_halves(values.data() + r * stride, static_cast<int>(stride), halves.data() + r * stride);
    }
  }

  ActivationRows view(std::size_t first = 0) const {
    const std::size_t at = first * stride, group = first * scale_stride;
    return {values.data() + at,  has_halves ? halves.data() + at : nullptr, quantized.data() + at, scales.data() + group,
            sums.data() + group, scaled_sums.data() + group, stride,                scale_stride};
  }

  // What a product sees of row r.
  double at(std::size_t r, std::int64_t k, const PackedMatrix& matrix) const {
    if (is_integer(matrix.format))
      return double{scales[r * scale_stride + k / matrix.pack.group_size]} * quantized[r * stride + k];
    return has_halves ? bf16_to_float(halves[r * stride + k]) : values[r * stride + k];
  }
};

void check_matmul(Checks& checks, const Kernels& kernels, const Packed& packed, const std::vector<std::vector<float>>& x) {
  const PackedMatrix& matrix = packed.matrix;
  const auto matmul = kernels.matmul;
  const Rows rows(kernels, x, matrix.pack.group_size, matrix.pack.halves);
  const int num_rows = static_cast<int>(x.size());
  std::vector<float> weights(static_cast<std::size_t>(matrix.columns));
  for (std::int64_t tile = 0; tile < matrix.num_tiles(); ++tile) {
    std::vector<float> y(x.size() * kTileColumns, 7.0F), alone(kTileColumns), twice;
    matmul(matrix.tile(tile, matrix.tile_data(tile + 1)), rows.view(), num_rows, y.data(), kTileColumns, false);
    for (int r = 0; r < num_rows; ++r) {  // batch invariance: the same bits
      matmul(matrix.tile(tile), rows.view(static_cast<std::size_t>(r)), 1, alone.data(), kTileColumns, false);
      CHECK(std::equal(alone.begin(), alone.end(), y.begin() + r * kTileColumns));
    }
    twice = y;
    matmul(matrix.tile(tile), rows.view(), num_rows, twice.data(), kTileColumns, true);
    for (std::size_t i = 0; i < y.size(); ++i) CHECK_EQ(twice[i], y[i] + y[i]);
    for (int column = 0; column < kTileColumns; ++column) {
      const std::int64_t row_of_weights = tile * kTileColumns + column;
      if (row_of_weights < matrix.rows) {
        unpack_row(matrix, row_of_weights, weights.data());
      } else {
        std::fill(weights.begin(), weights.end(), 0.0F);
      }
      for (int r = 0; r < num_rows; ++r) {
        double exact = 0.0, magnitude = 0.0;
        for (std::int64_t k = 0; k < matrix.columns; ++k) {
          const double a = rows.at(r, k, matrix);
          exact += a * double{weights[k]};
          magnitude += std::abs(a * double{weights[k]});
        }
        CHECK_NEAR(y[r * kTileColumns + column], exact, 1e-5 * magnitude + 1e-30);
      }
    }
  }
}

void test_matmuls(Checks& checks, const Kernels& kernels) {
  const std::string isa = kernels.name;
  const std::int64_t num_weight_rows = 45, k = 160;  // a tile and a part; K fills no group of 64
  struct Case {
    const char* weights;
    int group = 32;
    bool halves = false;
    TensorType type = TensorType::kF32;
  };
  for (const auto& [weights, group, halves, type] :
       {Case{"int8"}, {"int8", 64}, {"int8", 128}, {"int4"}, {"nf4"}, {"bf16"}, {"bf16", 32, true},
        {"int4", 32, false, TensorType::kQ4_0}, {"int4", 32, false, TensorType::kIQ4_NL}}) {
    if (halves && kernels.round_to_halves == nullptr) continue;
    PackFormat format = checked_format(weights, group, kernels.weight_bias);
    format.halves = halves;
    const bool floats = type == TensorType::kF32;
    const std::string name = "kernels: " + isa + " " + weights + " group " + std::to_string(group) +
                             (halves ? " halves" : "") + (floats ? "" : " type " + std::to_string(int(type)));
    checks.run(name + " product, for every number of rows", [&] {
      constexpr std::uint16_t kScales[] = {0x2c00, 0xac00, 0x2e55, 0x2801, 0x0200};
      const Packed packed(format, type, num_weight_rows, k,
                          floats ? bytes_of(random_logits(static_cast<std::int32_t>(num_weight_rows * k), 1.0F, 5))
                                 : random_blocks(type, num_weight_rows * k, kScales, 5));
      for (std::size_t num_rows = 1; num_rows <= 17; ++num_rows) {
        std::vector<std::vector<float>> x;
        for (std::size_t r = 0; r < num_rows; ++r) x.push_back(random_logits(static_cast<std::int32_t>(k), 3.0F, 100 + r));
        check_matmul(checks, kernels, packed, x);
      }
    });
    checks.run(name + " product of extremes does not saturate", [&] {
      for (const float sign : {1.0F, -1.0F}) {
        std::vector<std::uint8_t> source = bytes_of(std::vector<float>(32 * 64, 127.0F * sign));
        if (!floats) {  // the code of the largest magnitude, and the highest
          constexpr std::uint16_t kOne[] = {0x3c00};
          source = random_blocks(type, 32 * 64, kOne, 1);
          for (std::size_t i = 0; i < source.size(); ++i)
            if (i % 18 > 1) source[i] = sign > 0 ? 0xff : 0x00;
        }
        const Packed packed(format, type, 32, 64, source);
        check_matmul(checks, kernels, packed, {std::vector<float>(64, 127.0F), std::vector<float>(64, -127.0F)});
      }
    });
    checks.run(name + " product with zeros", [&] {
      const Packed packed(format, type, 32, 64, std::vector<std::uint8_t>(32 * row_bytes(type, 64)));
      check_matmul(checks, kernels, packed, {std::vector<float>(64, 1.0F), std::vector<float>(64, 0.0F)});
    });
  }
}

void test_row_kernels(Checks& checks, const Kernels& kernels) {
  const std::string name = std::string("kernels: ") + kernels.name;
  checks.run(name + " quantises within half a step, symmetrically", [&] {
    for (const int group : {32, 64, 128}) {
      std::vector<float> x = random_logits(256, 4.0F, 8);
      std::fill(x.begin() + 64, x.begin() + 128, 0.0F);
      const Rows rows(kernels, {x}, group);
      for (int i = 0; i < 256; ++i) {
        const int value = rows.quantized[i];
        CHECK(value >= -127 && value <= 127);
        CHECK_NEAR(value * double{rows.scales[i / group]}, x[i], 0.5001 * double{rows.scales[i / group]});
      }
      for (int g = 0; g < 256 / group; ++g) {
        int sum = 0, largest = 0;
        for (int i = 0; i < group; ++i) {
          sum += rows.quantized[g * group + i];
          largest = std::max(largest, std::abs(int{rows.quantized[g * group + i]}));
        }
        CHECK_EQ(rows.sums[g], sum);
        CHECK_EQ(rows.scaled_sums[g], rows.scales[g] * static_cast<float>(sum));
        CHECK_EQ(largest, rows.scales[g] == 0.0F ? 0 : 127);
      }
    }
  });

  checks.run(name + " root-mean-square norm", [&] {
    for (const int size : {64, 96, 100, 576}) {
      const auto padded = static_cast<std::size_t>(round_up(size, kRowAlign));
      std::vector<float> x = random_logits(size, 3.0F, 1), weight = random_logits(size, 2.0F, 2), out(padded, 9.0F);
      x.resize(padded, 0.0F);
      weight.resize(padded, 0.0F);
      kernels.rms_norm(x.data(), weight.data(), size, 1e-5F, out.data());
      double squares = 0.0;
      for (int i = 0; i < size; ++i) squares += double{x[i]} * double{x[i]};
      const double scale = 1.0 / std::sqrt(squares / size + 1e-5);
      for (int i = 0; i < size; ++i) CHECK_NEAR(out[i], x[i] * scale * weight[i], 2e-6 * std::abs(x[i] * scale * weight[i]));
      for (std::size_t i = size; i < padded; ++i) CHECK_EQ(out[i], 0.0F);
    }
  });

  checks.run(name + " gated product, also far out", [&] {
    std::vector<float> gate = random_logits(64, 10.0F, 3), up = random_logits(64, 2.0F, 4), out(64);
    gate[0] = 100.0F;
    gate[1] = -100.0F;
    gate[2] = 1e30F;
    gate[3] = -1e30F;
    gate[4] = 0.0F;
    kernels.silu_multiply(gate.data(), up.data(), 64, out.data());
    for (int i = 0; i < 64; ++i) {
      const double exact = double{gate[i]} / (1.0 + std::exp(-double{gate[i]})) * double{up[i]};
      CHECK_NEAR(out[i], exact, 2e-6 * std::abs(exact) + 1e-7);
    }
    kernels.gelu_tanh_multiply(gate.data(), up.data(), 64, out.data());
    for (int i = 0; i < 64; ++i) {
      const double g = gate[i];
      const double tail = std::tanh(std::sqrt(2.0 / M_PI) * (g + 0.044715 * g * g * g));
      CHECK_NEAR(out[i], 0.5 * g * (1.0 + tail) * double{up[i]}, 3e-6 * std::abs(g * up[i]) + 1e-7);
    }
  });

  checks.run(name + " soft cap, also far out", [&] {
    for (const float cap : {1.0F, 30.0F}) {
      std::vector<float> values = random_logits(64, 2.0F * cap, 5);
      values[0] = 0.0F;
      values[1] = 1e30F;
      values[2] = -1e30F;
      values[3] = INFINITY;
      values[4] = 1e-3F;
      values[5] = std::nanf("");
      std::vector<float> out = values;
      kernels.soften(out.data(), 64, cap);
      for (int i = 0; i < 64; ++i) {
        if (i != 5) CHECK_NEAR(out[i], cap * std::tanh(double{values[i]} / cap), 4e-7 * cap);
      }
      CHECK(std::isnan(out[5]));
    }
  });
}

void test_router(Checks& checks, const Kernels& kernels) {
  checks.run(std::string("kernels: ") + kernels.name + " router product, each row as if alone", [&] {
    for (const int k : {1, 7, 96}) {
      constexpr int kRows = 5, kStride = 100;
      const std::vector<float> tile = random_logits(k * kTileColumns, 1.0F, 1), x = random_logits(kRows * kStride, 1.0F, 2);
      std::vector<float> y(kRows * 64, 9.0F), alone(kTileColumns);
      kernels.matmul_f32(tile.data(), k, x.data(), kStride, kRows, y.data(), 64);
      for (int r = 0; r < kRows; ++r) {
        for (int c = 0; c < kTileColumns; ++c) {
          double exact = 0.0;
          for (int i = 0; i < k; ++i) exact += double{x[r * kStride + i]} * double{tile[i * kTileColumns + c]};
          CHECK_NEAR(y[r * 64 + c], exact, 1e-5);
          CHECK_EQ(y[r * 64 + kTileColumns + c], 9.0F);
        }
        kernels.matmul_f32(tile.data(), k, x.data() + r * kStride, kStride, 1, alone.data(), kTileColumns);
        CHECK(std::equal(alone.begin(), alone.end(), y.begin() + r * 64));
      }
    }
  });
}

}  // namespace

void test_kernels(Checks& checks) {
  const FloatModeScope float_mode;  // as on the workers
  for (const Kernels* kernels : available_kernels()) {
    test_matmuls(checks, *kernels);
    test_row_kernels(checks, *kernels);
    test_router(checks, *kernels);
  }
}

}  // namespace headway::test
