/* Calls the dispatcher once for each group of four arguments: compute capability, head dim, dtype, causal. Prints the
 * result code and, on failure, the message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kgen.h"

void kgen_emulator_device(int capability);

int main(int argc, char** argv) {
    size_t count;
    const kgen_variant* variants = kgen_variants(&count);
    for (size_t i = 0; i < count; ++i) printf("%s %d %d\n", variants[i].name, (int)variants[i].target, (int)variants[i].target_max);
    for (int i = 1; i + 3 < argc; i += 4) {
        /* An empty batch: the chosen launcher checks all parameters and launches nothing. */
        kgen_fwd_params p = {0};
        p.struct_size = sizeof p;
        p.num_heads = p.num_heads_k = 1;
        kgen_emulator_device(atoi(argv[i]));
        p.head_dim = atoi(argv[i + 1]);
        p.dtype = atoi(argv[i + 2]);
        p.flags = atoi(argv[i + 3]) ? KGEN_FLAG_CAUSAL : 0;
        const int code = kgen_fwd(&p, NULL);
        printf("%d %s\n", code, code == KGEN_SUCCESS ? "" : kgen_last_error());
    }
    kgen_fwd_params old = {0};
    old.struct_size = 8;
    printf("%d %s\n", kgen_fwd(&old, NULL), kgen_last_error());
    printf("%d %s\n", kgen_fwd(NULL, NULL), kgen_last_error());

    /* A caller built with a later version, whose structure is 16 bytes longer: accepted if the extra bytes are zero. */
    struct {
        kgen_fwd_params p;
        char more[16];
    } newer;
    memset(&newer, 0, sizeof newer);
    newer.p.struct_size = sizeof newer;
    newer.p.num_heads = newer.p.num_heads_k = 1;
    newer.p.head_dim = variants[0].head_dim;
    newer.p.dtype = variants[0].dtype;
    newer.p.flags = (variants[0].features & KGEN_FEATURE_CAUSAL) != 0 ? KGEN_FLAG_CAUSAL : 0;
    kgen_emulator_device(variants[0].target);
    printf("%d\n", kgen_fwd(&newer.p, NULL));
    newer.more[15] = 1;
    printf("%d %s\n", kgen_fwd(&newer.p, NULL), kgen_last_error());
    printf("%d %s\n", variants[0].launch(&newer.p, NULL), kgen_last_error());
    printf("%zu %s\n", kgen_fwd_workspace(&newer.p), kgen_last_error());
    newer.more[15] = 0;
    newer.p.flags |= 0x40;
    printf("%d %s\n", kgen_fwd(&newer.p, NULL), kgen_last_error());
    printf("%d %s\n", variants[0].launch(&newer.p, NULL), kgen_last_error());
    newer.p.struct_size = 1u << 30;
    printf("%d %s\n", kgen_fwd(&newer.p, NULL), kgen_last_error());
    return 0;
}
