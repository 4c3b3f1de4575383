// Runs an emulated forward kernel on a few cases and compares O and LSE with attention computed in float64.
//
//   harness LIBRARY NAME [CASE...]
//
// LIBRARY is the kernel and the emulator's runtime as a shared library, NAME the kernel's name. A case is
// batch,heads,heads_k,seqlen_q,seqlen_k[,layout[,seed]]; layout is one of dense, gapped (rows further apart than they
// are long), unaligned (strides that rule out 16-byte copies), packed (cu_seqlens), or steep: dense, with logits so far
// apart that the running maximum of a row grows much from tile to tile. One line a case, the emulator's report below a
// case that has one; exit status 1 if any failed.

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <string>
#include <vector>

#include "kgen.h"
#include "kgen/emulator.h"
#include "kgen/math.cuh"

namespace {

namespace emulator = kgen::emulator;

struct subject {
    kgen_fwd_launcher launch;
    decltype(&kgen_emulator_reset) reset;
    decltype(&kgen_emulator_tensor) tensor;
    decltype(&kgen_emulator_report) report;
    decltype(&kgen_last_error) last_error;
    int head_dim;
    bool bf16;
    bool causal;
};

struct test_case {
    int batch, heads, heads_k, seqlen_q, seqlen_k;
    std::string layout;
    uint64_t seed;
};

double seconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

uint64_t random_state = 1;
double uniform() {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (static_cast<double>(random_state >> 11) + 0.5) / 9007199254740992.0;
}
double normal() { return sqrt(-2.0 * log(uniform())) * cos(6.283185307179586 * uniform()); }

uint16_t narrow(const subject& s, float x) {
    return static_cast<uint16_t>(s.bf16 ? emulator::round_to_bf16(x) : emulator::round_to_fp16(x));
}

double widen(const subject& s, uint16_t bits) {
    if (s.bf16) return emulator::float_of_bits(static_cast<uint32_t>(bits) << 16);
    const int exponent = bits >> 10 & 31;
    const int mantissa = bits & 1023;
    const double magnitude = exponent == 0    ? ldexp(mantissa, -24)
                             : exponent == 31 ? (mantissa == 0 ? INFINITY : NAN)
                                              : ldexp(1024 + mantissa, exponent - 25);
    return bits & 0x8000 ? -magnitude : magnitude;
}

// A tensor (batch, rows, heads, head_dim) in a layout of its own, with a map of which elements exist.
struct tensor4 {
    std::vector<uint16_t> memory;
    std::vector<uint8_t> map;
    std::vector<double> values;
    uint16_t* base;
    size_t elements;
    int64_t batch_stride, row_stride, head_stride;

    tensor4(const subject& s, const std::string& layout, int batch, int rows, int heads, double spread) {
        const int64_t gap = layout == "gapped" ? 24 : layout == "unaligned" ? 3 : 0;
        head_stride = s.head_dim + gap;
        row_stride = head_stride * heads + gap;
        batch_stride = row_stride * rows + gap;
        elements = static_cast<size_t>(batch_stride * batch);
        memory.assign(elements + 16, 0xffff);
        map.assign(elements + 1, 0);
        values.assign(elements + 1, 0);
        base = reinterpret_cast<uint16_t*>((reinterpret_cast<uintptr_t>(memory.data()) + 15) / 16 * 16);
        for (int b = 0; b < batch; ++b) {
            for (int r = 0; r < rows; ++r) {
                for (int h = 0; h < heads; ++h) {
                    for (int d = 0; d < s.head_dim; ++d) {
                        const auto at = static_cast<size_t>(b * batch_stride + r * row_stride + h * head_stride + d);
                        map[at] = 1;
                        if (spread == 0) continue;  // an output
                        base[at] = narrow(s, static_cast<float>(spread * normal()));
                        values[at] = widen(s, base[at]);
                    }
                }
            }
        }
    }
    size_t at(int b, int r, int h) const { return static_cast<size_t>(b * batch_stride + r * row_stride + h * head_stride); }
};

// Smallest error of O worth failing for: what rounding P and O to the element type costs, with room for sums of such.
// LSE is fp32 throughout.
double tolerance_of_o(const subject& s, double magnitude) { return (s.bf16 ? 1.6e-2 : 2e-3) * (magnitude + 0.25); }
double tolerance_of_lse(double magnitude) { return 2e-5 * (magnitude + 1); }

bool run_case(const subject& s, const test_case& c) {
    random_state = 77 + c.seed;
    const bool packed = c.layout == "packed";
    // Packed: one long row axis, sequence b ending 7 b rows early for Q and 5 b for K.
    std::vector<int32_t> cu_q(1, 0), cu_k(1, 0);
    std::vector<int> rows_q, rows_k;
    for (int b = 0; b < c.batch; ++b) {
        rows_q.push_back(packed ? std::max(0, c.seqlen_q - 7 * b) : c.seqlen_q);
        rows_k.push_back(packed ? std::max(0, c.seqlen_k - 5 * b) : c.seqlen_k);
        cu_q.push_back(cu_q.back() + rows_q.back());
        cu_k.push_back(cu_k.back() + rows_k.back());
    }
    const int batch = packed ? 1 : c.batch;
    const int all_q = packed ? cu_q.back() : c.seqlen_q;
    const int all_k = packed ? cu_k.back() : c.seqlen_k;
    tensor4 q(s, c.layout, batch, all_q, c.heads, c.layout == "steep" ? 12 : 1), k(s, c.layout, batch, all_k, c.heads_k, 1);
    tensor4 v(s, c.layout, batch, all_k, c.heads_k, 1), o(s, c.layout, batch, all_q, c.heads, 0);
    std::vector<float> lse(static_cast<size_t>(batch) * c.heads * all_q + 1, NAN);

    kgen_fwd_params p = {};
    p.struct_size = sizeof p;
    p.flags = s.causal ? KGEN_FLAG_CAUSAL : 0;
    p.q = q.base, p.k = k.base, p.v = v.base, p.o = o.base, p.lse = lse.data();
    p.q_batch_stride = q.batch_stride, p.q_row_stride = q.row_stride, p.q_head_stride = q.head_stride;
    p.k_batch_stride = k.batch_stride, p.k_row_stride = k.row_stride, p.k_head_stride = k.head_stride;
    p.v_batch_stride = v.batch_stride, p.v_row_stride = v.row_stride, p.v_head_stride = v.head_stride;
    p.o_batch_stride = o.batch_stride, p.o_row_stride = o.row_stride, p.o_head_stride = o.head_stride;
    p.lse_batch_stride = static_cast<int64_t>(c.heads) * all_q, p.lse_head_stride = all_q;
    if (packed) p.cu_seqlens_q = cu_q.data(), p.cu_seqlens_k = cu_k.data();
    p.batch = c.batch, p.num_heads = c.heads, p.num_heads_k = c.heads_k;
    p.seqlen_q = c.seqlen_q, p.seqlen_k = c.seqlen_k;
    p.head_dim = s.head_dim, p.dtype = s.bf16 ? KGEN_DTYPE_BF16 : KGEN_DTYPE_FP16;
    p.softmax_scale = static_cast<float>(1.0 / sqrt(s.head_dim));

    s.reset(c.seed);
    s.tensor("q", q.base, q.elements * 2, q.map.data(), 2, 0);
    s.tensor("k", k.base, k.elements * 2, k.map.data(), 2, 0);
    s.tensor("v", v.base, v.elements * 2, v.map.data(), 2, 0);
    s.tensor("o", o.base, o.elements * 2, o.map.data(), 2, 1);
    s.tensor("lse", lse.data(), (lse.size() - 1) * 4, nullptr, 4, 1);
    if (packed) {
        s.tensor("cu_seqlens_q", cu_q.data(), cu_q.size() * 4, nullptr, 4, 0);
        s.tensor("cu_seqlens_k", cu_k.data(), cu_k.size() * 4, nullptr, 4, 0);
    }
    const double before = seconds();
    const int code = s.launch(&p, nullptr);
    const double took = seconds() - before;

    double worst = 0;  // largest error over its tolerance
    std::string where = "nowhere";
    const auto compare = [&](double got, double want, double tolerance, const char* what, int b, int h, int i, int d) {
        if (got == want) return;
        const double ratio = fabs(got - want) / tolerance;
        if (!(ratio <= worst)) {
            worst = isnan(ratio) ? INFINITY : ratio;
            where = std::string(what) + " batch " + std::to_string(b) + " head " + std::to_string(h) + " row " + std::to_string(i) + " column " + std::to_string(d);
        }
    };
    std::vector<double> weights(static_cast<size_t>(c.seqlen_k) + 1);
    for (int b = 0; b < c.batch; ++b) {
        const int tensor_batch = packed ? 0 : b;
        const int first_q = packed ? cu_q[b] : 0;
        const int first_k = packed ? cu_k[b] : 0;
        for (int h = 0; h < c.heads; ++h) {
            const int hk = h / (c.heads / c.heads_k);
            for (int i = 0; i < rows_q[b]; ++i) {
                const int seen = s.causal ? std::min(rows_k[b], std::max(0, i + rows_k[b] - rows_q[b] + 1)) : rows_k[b];
                double largest = -INFINITY;
                const double* q_row = &q.values[q.at(tensor_batch, first_q + i, h)];
                for (int j = 0; j < seen; ++j) {
                    const double* k_row = &k.values[k.at(tensor_batch, first_k + j, hk)];
                    double dot = 0;
                    for (int d = 0; d < s.head_dim; ++d) dot += q_row[d] * k_row[d];
                    weights[j] = dot * p.softmax_scale;
                    largest = std::max(largest, weights[j]);
                }
                double sum = 0;
                std::vector<double> values(s.head_dim, 0.0);
                for (int j = 0; j < seen; ++j) {
                    sum += weights[j] = exp(weights[j] - largest);
                    const double* v_row = &v.values[v.at(tensor_batch, first_k + j, hk)];
                    for (int d = 0; d < s.head_dim; ++d) values[d] += weights[j] * v_row[d];
                }
                for (int d = 0; d < s.head_dim; ++d) {
                    const double want = seen > 0 ? values[d] / sum : 0.0;
                    compare(widen(s, o.base[o.at(tensor_batch, first_q + i, h) + d]), want, tolerance_of_o(s, fabs(want)), "O", b, h, i, d);
                }
                const auto row = static_cast<size_t>((packed ? 0 : b * p.lse_batch_stride) + h * p.lse_head_stride + first_q + i);
                const double want = seen > 0 ? largest + log(sum) : -INFINITY;
                compare(lse[row], want, tolerance_of_lse(fabs(want)), "LSE", b, h, i, 0);
            }
        }
    }
    const bool passed = code == KGEN_SUCCESS && worst <= 1 && s.report()[0] == '\0';
    printf("%s B%d H%d/%d Sq%d Sk%d %s seed %llu: error %.3g of tolerance (%s), %.1f ms\n", passed ? "pass" : "FAIL", c.batch, c.heads, c.heads_k, c.seqlen_q,
           c.seqlen_k, c.layout.c_str(), static_cast<unsigned long long>(c.seed), worst, where.c_str(), took * 1e3);
    if (code != KGEN_SUCCESS) printf("  code %d: %s\n%s", code, s.last_error(), s.report());
    return passed;
}

test_case parse_case(const char* text) {
    test_case c = {};
    char layout[32] = "dense";
    unsigned long long seed = 1;
    if (sscanf(text, "%d,%d,%d,%d,%d,%31[a-z],%llu", &c.batch, &c.heads, &c.heads_k, &c.seqlen_q, &c.seqlen_k, layout, &seed) < 5) {
        fprintf(stderr, "harness: `%s` is not batch,heads,heads_k,seqlen_q,seqlen_k[,layout[,seed]]\n", text);
        exit(2);
    }
    c.layout = layout;
    c.seed = seed;
    return c;
}

template <class F>
void find(void* library, const char* name, F& function) {
    function = reinterpret_cast<F>(dlsym(library, name));
    if (function == nullptr) {
        fprintf(stderr, "harness: no `%s` in the library\n", name);
        exit(2);
    }
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 4) {
        fprintf(stderr, "usage: harness LIBRARY NAME CASE...\n");
        return 2;
    }
    const std::string name = arguments[2];
    void* library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        fprintf(stderr, "harness: %s\n", dlerror());
        return 2;
    }
    subject s = {};
    find(library, name.c_str(), s.launch);
    find(library, "kgen_emulator_reset", s.reset);
    find(library, "kgen_emulator_tensor", s.tensor);
    find(library, "kgen_emulator_report", s.report);
    find(library, "kgen_last_error", s.last_error);
    s.head_dim = atoi(name.c_str() + name.find("hdim") + 4);
    s.bf16 = name.find("bf16") != std::string::npos;
    s.causal = name.find("causal") != std::string::npos;
    bool passed = true;
    for (int i = 3; i < count; ++i) passed = run_case(s, parse_case(arguments[i])) && passed;
    return passed ? 0 : 1;
}
