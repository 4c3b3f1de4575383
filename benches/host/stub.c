// A stub of libkgen whose functions return immediately, for benches/host.py.
#include "kgen.h"
int kgen_fwd(const kgen_fwd_params* p, cudaStream_t s) { return 0; }
int kgen_bwd(const kgen_bwd_params* p, cudaStream_t s) { return 0; }
int kgen_fwd_metadata(const kgen_fwd_params* p, cudaStream_t s) { return 0; }
int kgen_explain_choice(const kgen_fwd_params* p, kgen_choice* choice) { return KGEN_ERROR_NO_VARIANT; }
int kgen_append_kv(const kgen_append_kv_params* p, cudaStream_t s) { return 0; }
int kgen_fwd_kvcache(const kgen_append_kv_params* a, const kgen_fwd_params* p, cudaStream_t s) { return 0; }
size_t kgen_fwd_workspace(const kgen_fwd_params* p) { return p->num_splits > 1 ? 65536 : 0; }
size_t kgen_bwd_workspace(const kgen_bwd_params* p) { return 1024; }
const kgen_variant* kgen_variants(size_t* count) { *count = 0; return NULL; }
const char* kgen_last_error(void) { return ""; }
uint32_t kgen_abi_version(void) { return KGEN_ABI_VERSION; }
#ifdef VLLM
void kgen_emulator_tensor(void) {}
#endif
