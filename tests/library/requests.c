/* Asks the dispatcher for what is on its command line, once for each group of four numbers:
 * compute capability, head dim, dtype, causal. Prints the result code and, on failure, the message. */
#include <stdio.h>
#include <stdlib.h>

#include "kgen.h"

void kgen_emulator_device(int capability);

int main(int argc, char** argv) {
    size_t count;
    const kgen_variant* variants = kgen_variants(&count);
    for (size_t i = 0; i < count; ++i) printf("%s %d %d\n", variants[i].name, (int)variants[i].target, (int)variants[i].target_max);
    for (int i = 1; i + 3 < argc; i += 4) {
        /* An empty batch: the chosen launcher checks everything and starts nothing. */
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
    return 0;
}
