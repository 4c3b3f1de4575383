/* Prints the launcher that kgen_fwd calls on a device with ten multiprocessors, for each group of four arguments:
 * compute capability, batch, heads, seqlen_q. The launchers fail with their own names. */
#include <stdio.h>
#include <stdlib.h>

#include "kgen.h"

void kgen_emulator_device(int capability);
void kgen_emulator_multiprocessors(int count);

int main(int argc, char** argv) {
    kgen_emulator_multiprocessors(10);
    for (int i = 1; i + 3 < argc; i += 4) {
        kgen_fwd_params p = {0};
        p.struct_size = sizeof p;
        p.head_dim = 64;
        p.seqlen_k = 64;
        kgen_emulator_device(atoi(argv[i]));
        p.batch = atoi(argv[i + 1]);
        p.num_heads = p.num_heads_k = atoi(argv[i + 2]);
        p.seqlen_q = atoi(argv[i + 3]);
        kgen_fwd(&p, NULL);
        printf("%s\n", kgen_last_error());
    }
    return 0;
}
