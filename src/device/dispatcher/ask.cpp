// Prints what the generated dispatcher answers to a call on a described card, as one JSON object. The card and the call
// are arguments NAME=NUMBER. Launchers do nothing.
#include "dispatch.cpp"

#define KGEN_IDLE_0(name, params)
#define KGEN_IDLE_1(name, params) \
    size_t name##_workspace(const params*) { return 0; }
#define KGEN_IDLE(name, params, workspace, ...)             \
    int name(const params*, cudaStream_t) { return 0; }     \
    KGEN_IDLE_##workspace(name, params)
extern "C" {
KGEN_KERNELS(KGEN_IDLE)
}

static struct {
    int capability, multiprocessors, shared_bytes, dram_gbs, l2_bytes;
} card;

constexpr int BUS_BITS = 4000;  // with a clock in kHz of 1000 times the bandwidth in GB/s

extern "C" cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
extern "C" cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
        case cudaDevAttrComputeCapabilityMajor: *value = card.capability / 10; break;
        case cudaDevAttrComputeCapabilityMinor: *value = card.capability % 10; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = card.shared_bytes; break;
        case cudaDevAttrMultiProcessorCount: *value = card.multiprocessors; break;
        case cudaDevAttrMemoryClockRate: *value = 1000 * card.dram_gbs; break;
        case cudaDevAttrL2CacheSize: *value = card.l2_bytes; break;
        case cudaDevAttrGlobalMemoryBusWidth: *value = BUS_BITS; break;
        default: return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}
extern "C" cudaError_t cudaGetLastError() { return cudaSuccess; }
extern "C" const char* cudaGetErrorString(cudaError_t) { return "unknown attribute"; }
extern "C" const char* cudaGetErrorName(cudaError_t) { return "cudaErrorInvalidValue"; }

static void print_text(const char* text) {
    if (text == nullptr) {
        fputs("null", stdout);
        return;
    }
    putchar('"');
    for (; *text != '\0'; ++text) {
        if (*text == '"' || *text == '\\') putchar('\\');
        putchar(*text);
    }
    putchar('"');
}

int main(int count, char** arguments) {
    alignas(16) static int32_t somewhere[4];
    kgen_fwd_params p = {};
    p.struct_size = sizeof p;
    int unequal_q = 0, unequal_k = 0, flags = 0;
    const struct {
        const char* name;
        int* value;
    } fields[] = {
        {"capability", &card.capability}, {"multiprocessors", &card.multiprocessors}, {"shared_bytes", &card.shared_bytes},
        {"dram_gbs", &card.dram_gbs}, {"l2_bytes", &card.l2_bytes},
        {"batch", &p.batch}, {"heads", &p.num_heads}, {"heads_k", &p.num_heads_k},
        {"seqlen_q", &p.seqlen_q}, {"seqlen_k", &p.seqlen_k}, {"head_dim", &p.head_dim}, {"head_dim_v", &p.head_dim_v},
        {"dtype", &p.dtype}, {"kv_dtype", &p.kv_dtype}, {"flags", &flags},
        {"unequal_q", &unequal_q}, {"unequal_k", &unequal_k}, {"total_q", &p.total_q}, {"total_k", &p.total_k},
        {"window_left", &p.features.window_left}, {"window_right", &p.features.window_right},
        {"page_size", &p.page_size}, {"num_splits", &p.num_splits},
    };
    for (int i = 1; i < count; ++i) {
        const char* const equals = strchr(arguments[i], '=');
        bool known = false;
        for (const auto& field : fields) {
            const size_t length = strlen(field.name);
            if (equals == nullptr || static_cast<size_t>(equals - arguments[i]) != length || memcmp(arguments[i], field.name, length) != 0) continue;
            *field.value = atoi(equals + 1);
            known = true;
        }
        if (!known) return fprintf(stderr, "unknown argument %s\n", arguments[i]), 2;
    }
    p.flags = static_cast<uint32_t>(flags);
    p.softmax_scale = 1;
    // Neither an address nor what it holds is read.
    p.cu_seqlens_q = unequal_q != 0 ? somewhere : nullptr;
    p.page_table = p.page_size > 0 ? somewhere : nullptr;
    p.num_pages = p.page_size > 0 ? 1 : 0;
    p.cu_seqlens_k = unequal_k != 0 && p.page_table == nullptr ? somewhere : nullptr;
    p.seqused_k = unequal_k != 0 && p.page_table != nullptr ? somewhere : nullptr;
    p.workspace = somewhere, p.workspace_bytes = SIZE_MAX;

    kgen_candidate list[KGEN_MOST_CANDIDATES];
    kgen_choice choice = {sizeof choice, sizeof list[0], list, KGEN_MOST_CANDIDATES, 0, 0, 0};
    const int code = kgen_explain_choice(&p, &choice);
    printf("{\"chosen\":%d,\"error\":", static_cast<int>(choice.chosen));
    print_text(code == KGEN_SUCCESS ? nullptr : last_error);
    printf(",\"candidates\":[");
    for (int i = 0; i < choice.count; ++i) {
        const kgen_candidate& c = list[i];
        printf("%s{\"path\":%d,\"num_splits\":%d,\"variant\":", i == 0 ? "" : ",", static_cast<int>(c.path), static_cast<int>(c.num_splits));
        print_text(c.variant);
        printf(",\"excluded\":");
        print_text(c.excluded);
        printf(",\"workspace_bytes\":%zu,\"predicted_ns\":%.17g,\"launch_ns\":%.17g,\"tile_ns\":%.17g,\"chain_ns\":%.17g,\"step_ns\":%.17g,"
               "\"memory_ns\":%.17g,\"combine_ns\":%.17g,\"scheduler_ns\":%.17g,\"by_last_block\":%s}",
               c.workspace_bytes, c.predicted_ns, c.launch_ns, c.tile_ns, c.chain_ns, c.step_ns, c.memory_ns, c.combine_ns, c.scheduler_ns,
               c.by_last_block != 0 ? "true" : "false");
    }
    puts("]}");
    return 0;
}
