// mma and ldmatrix, and the 16-bit floats that they take. Fragments lie as the PTX ISA says: with
// group = lane / 4 and pair = lane % 4, two 16-bit numbers in a register, the first in its low half.
#include "machine.h"

#include <math.h>
#include <string.h>

namespace cuda_emulator {

float half_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
  if (exponent == 0) return (sign ? -1.0f : 1.0f) * static_cast<float>(fraction) * 0x1p-24f;
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return from_bits<float>(sign | wide << 23 | fraction << 13);
}

uint16_t float_to_half(float x) {
  const uint32_t bits = static_cast<uint32_t>(bits_of(x)), size = bits & 0x7fffffff;
  const uint16_t sign = bits >> 16 & 0x8000;
  if (size > 0x7f800000) return 0x7fff;          // NaN
  if (size >= 0x477ff000) return sign | 0x7c00;  // 65520 and more: infinity
  if (size < 0x38800000)  // subnormal: the sum with 0.5 is rounded where they end
    return sign | (static_cast<uint32_t>(bits_of(from_bits<float>(size) + 0.5f)) - 0x3f000000);
  return sign | ((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
}

float bfloat_to_float(uint16_t bits) {
  return from_bits<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t float_to_bfloat(float x) {
  const uint32_t bits = static_cast<uint32_t>(bits_of(x));
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

namespace {

struct Mma {
  float* c;
  const unsigned* a;
  const unsigned* b;
};

float small(Number number, unsigned word, int which) {
  const uint16_t bits = word >> 16 * which;
  return number == Number::f16 ? half_to_float(bits) : bfloat_to_float(bits);
}

// The sum of `count` numbers of each of 8 columns as tensor cores add: all are aligned with the
// largest of the column, of whose 24 bits they keep what lies above the last, and so does the sum;
// see Fasi et al., "Numerical behavior of NVIDIA tensor cores" (2021). Those of today keep a bit or
// two more, and none adds more numbers at once.
void add_aligned(const double (*terms)[8], int count, float* const* sums) {
  double largest[8] = {}, inverse[8], kept[8] = {};
  for (int k = 0; k < count; ++k)
    for (int j = 0; j < 8; ++j)  // fmax is a call
      largest[j] = fabs(terms[k][j]) > largest[j] ? fabs(terms[k][j]) : largest[j];
  for (int j = 0; j < 8; ++j)
    inverse[j] = from_bits<double>((2046 + 23 - (bits_of(largest[j]) >> 52)) << 52);  // of the unit
  for (int k = 0; k < count; ++k)
    for (int j = 0; j < 8; ++j) kept[j] += static_cast<int>(terms[k][j] * inverse[j]);
  for (int j = 0; j < 8; ++j) {
    const double sum = largest[j] == 0 ? 0 : kept[j] / inverse[j];
    const float rounded = static_cast<float>(sum);
    *sums[j] = fabs(rounded) > fabs(sum) ? nextafterf(rounded, 0) : rounded;
  }
}

// The tile c of all lanes += a b, of depth 16 or 8.
void multiply(const float (&a)[16][16], const float (&b)[16][8], int depth, void* const* operands) {
  for (int i = 0; i < 16; ++i) {
    double terms[17][8];
    float* c[8];
    for (int j = 0; j < 8; ++j) {
      c[j] = static_cast<Mma*>(operands[i % 8 * 4 + j / 2])->c + i / 8 * 2 + j % 2;
      terms[depth][j] = *c[j];
    }
    for (int k = 0; k < depth; ++k)
      for (int j = 0; j < 8; ++j) terms[k][j] = static_cast<double>(a[i][k]) * b[k][j];
    double plain[8] = {};
    for (int k = 0; k <= depth; ++k)
      for (int j = 0; j < 8; ++j) plain[j] += terms[k][j];
    for (int j = 0; j < 8; ++j)
      if (!isfinite(plain[j]))
        for (int k = 0; k <= depth; ++k) terms[k][j] = 0;
    add_aligned(terms, depth + 1, c);
    for (int j = 0; j < 8; ++j)
      if (!isfinite(plain[j])) *c[j] = static_cast<float>(plain[j]);
  }
}

void require_whole_warp(const char* name, void* const* operands) {
  for (int lane = 0; lane < kWarp; ++lane)
    if (operands[lane] == nullptr) fail("%s in a warp of fewer than 32 threads", name);
}

template <Number number>
void perform_mma(unsigned, void* const* operands) {
  require_whole_warp("mma", operands);
  float a[16][16], b[16][8];
  for (int lane = 0; lane < kWarp; ++lane) {
    const int group = lane / 4, pair = lane % 4;
    const Mma& mma = *static_cast<Mma*>(operands[lane]);
    if (number == Number::tf32) {  // the low 13 bits of the fraction are not looked at
      for (int i = 0; i < 4; ++i)
        a[group + i % 2 * 8][pair + i / 2 * 4] = from_bits<float>(mma.a[i] & 0xffffe000);
      for (int i = 0; i < 2; ++i) b[pair + i * 4][group] = from_bits<float>(mma.b[i] & 0xffffe000);
      continue;
    }
    for (int i = 0; i < 4; ++i)
      for (int n = 0; n < 2; ++n)
        a[group + i % 2 * 8][2 * pair + n + i / 2 * 8] = small(number, mma.a[i], n);
    for (int i = 0; i < 2; ++i)
      for (int n = 0; n < 2; ++n) b[2 * pair + n + i * 8][group] = small(number, mma.b[i], n);
  }
  multiply(a, b, number == Number::tf32 ? 8 : 16, operands);
}

struct Ldmatrix {
  unsigned* to;
  const void* row;
  int count;
  bool transposed;
  Site site;
};

// The eight rows of a matrix are read at once, 16 bytes each, from 32 banks of 4 bytes.
void require_banks(void* const* operands, int matrix) {
  uintptr_t rows[8];
  for (int row = 0; row < 8; ++row) {
    const Ldmatrix& own = *static_cast<Ldmatrix*>(operands[8 * matrix + row]);
    rows[row] = reinterpret_cast<uintptr_t>(own.row) / 16;
    for (int other = 0; other < row; ++other)
      if (rows[other] != rows[row] && rows[other] % 8 == rows[row] % 8)
        fail("bank conflict: ldmatrix of rows %d and %d of a matrix\n  at: %s", other, row,
             place(own.site).text);
  }
}

void perform_ldmatrix(unsigned warp, void* const* operands) {
  require_whole_warp("ldmatrix", operands);
  for (int matrix = 0; matrix < static_cast<Ldmatrix*>(operands[0])->count; ++matrix)
    require_banks(operands, matrix);
  for (int lane = 0; lane < kWarp; ++lane) {
    const Ldmatrix& own = *static_cast<Ldmatrix*>(operands[lane]);
    for (int matrix = 0; matrix < own.count; ++matrix) {
      uint16_t pair[2];
      for (int n = 0; n < 2; ++n) {
        const int across = 2 * (lane % 4) + n;
        const int row = own.transposed ? across : lane / 4;
        const int column = own.transposed ? lane / 4 : across;
        const Ldmatrix& giver = *static_cast<Ldmatrix*>(operands[8 * matrix + row]);
        const char* at = static_cast<const char*>(giver.row);
        if (reinterpret_cast<uintptr_t>(at) % 16)
          fail("misaligned: ldmatrix of a row whose address is no multiple of 16\n  at: %s",
               place(giver.site).text);
        // The lane that gets a number is the one that reads it, whoever gave the address.
        check_access(at + 2 * column, 2, false, own.site, warp * kWarp + lane);
        memcpy(&pair[n], at + 2 * column, 2);
      }
      own.to[matrix] = pair[0] | static_cast<unsigned>(pair[1]) << 16;
    }
  }
}

const Meeting kMma[3] = {{"mma (f16)", true, perform_mma<Number::f16>},
                         {"mma (bf16)", true, perform_mma<Number::bf16>},
                         {"mma (tf32)", true, perform_mma<Number::tf32>}};
const Meeting kLdmatrix[2] = {{"ldmatrix", true, perform_ldmatrix},
                              {"ldmatrix.trans", true, perform_ldmatrix}};

}  // namespace

void mma(Number number, float* c, const unsigned* a, const unsigned* b) {
  Mma operands{c, a, b};
  meet(kMma[static_cast<int>(number)], 0xffffffff, &operands, __builtin_return_address(0));
}

void ldmatrix(unsigned* to, const void* row, int count, bool transposed) {
  Ldmatrix operands{to, row, count, transposed, __builtin_return_address(0)};
  meet(kLdmatrix[transposed], 0xffffffff, &operands, operands.site);
}

}  // namespace cuda_emulator
