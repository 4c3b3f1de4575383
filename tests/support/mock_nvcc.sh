#!/bin/sh
# Mock of nvcc for tests: answers `--version`, "compiles" a source to a small file, and fails as these variables select.
#
# MOCK_NVCC_VERSION  the version to report (13.0.88)
# MOCK_NVCC_LOG      file to which `start NAME PID`, `end NAME` and `link` are appended
# MOCK_NVCC_CCBIN_LOG file to which the host compiler of each call is appended
# MOCK_NVCC_ERROR    NAME of the unit that does not compile
# MOCK_NVCC_HANG     NAME of the unit whose compiler hangs, with a child process
# MOCK_NVCC_OOM      NAME of the unit whose compiler is always killed as out of memory
# MOCK_NVCC_OOM_ONCE NAME of the unit whose compiler is killed as out of memory the first time
# MOCK_NVCC_SPILL    NAME of the unit whose kernel spills
# MOCK_NVCC_SERIALISED NAME of the unit whose wgmma products ptxas serialises
# MOCK_NVCC_SLEEP    seconds each compile takes (0)
# MOCK_NVCC_GARBAGE  NAME of the unit whose object is MOCK_NVCC_TEXT, with exit code 0; "libkgen": the library is
# MOCK_NVCC_PTX      PTX to write for every kernel
# MOCK_NVCC_LINK     "error": the link fails
# MOCK_NVCC_DISPATCHER functions defined by the dispatcher's object, instead of those of kgen.h that a wheel needs
say() { [ -z "$MOCK_NVCC_LOG" ] || printf '%s\n' "$*" >>"$MOCK_NVCC_LOG"; }

output= source= shared= objects=
[ "$1" = --version ] && {
    version=${MOCK_NVCC_VERSION:-13.0.88}
    echo "nvcc: NVIDIA (R) Cuda compiler driver"
    echo "Cuda compilation tools, release ${version%.*}, V$version"
    echo "Build cuda_mock.$version/compiler.1_0"
    exit 0
}
while [ $# -gt 0 ]; do
    case $1 in
    -o) output=$2 && shift ;;
    -c) source=$2 && shift ;;
    -shared) shared=1 ;;
    obj/*.o) objects="$objects $1" ;;
    -ccbin) [ -z "$MOCK_NVCC_CCBIN_LOG" ] || echo "$2" >>"$MOCK_NVCC_CCBIN_LOG" ;;
    esac
    shift
done

if [ -n "$shared" ]; then
    say link
    [ "$MOCK_NVCC_LINK" != error ] || {
        echo "/usr/bin/ld: obj/kgen_dispatch.o: undefined reference to \`flash_fwd_missing'"
        echo "collect2: error: ld returned 1 exit status"
        exit 1
    }
    if [ "$MOCK_NVCC_GARBAGE" = libkgen ]; then printf %s "$MOCK_NVCC_TEXT" >"$output"; else ld -shared -o "$output" $objects; fi
    exit
fi

name=$(basename "$source")
name=${name%.*}
say "start $name $$"
sleep "${MOCK_NVCC_SLEEP:-0}"
case $name in
"$MOCK_NVCC_ERROR")
    echo "$source(7): warning #177-D: variable \"x\" was declared but never referenced"
    echo "$source(12): error: identifier \"no_such_thing\" is undefined"
    echo "1 error detected in the compilation of \"$source\"."
    exit 2
    ;;
"$MOCK_NVCC_HANG")
    sleep 600 &
    say "child $!"
    wait
    ;;
"$MOCK_NVCC_OOM")
    echo "nvcc error   : 'cicc' died due to signal 9 (Kill signal)"
    exit 9
    ;;
"$MOCK_NVCC_OOM_ONCE")
    if [ "$(grep -c "^start $name " "$MOCK_NVCC_LOG")" -lt 2 ]; then kill -9 $$; fi
    ;;
esac
spill=0
[ "$name" != "$MOCK_NVCC_SPILL" ] || spill=48
case $source in
*.cu)
    echo "ptxas info    : 0 bytes gmem"
    echo "ptxas info    : Compiling entry function 'kernel_of_$name' for 'sm_80'"
    echo "ptxas info    : Function properties for kernel_of_$name"
    echo "    $spill bytes stack frame, $spill bytes spill stores, $spill bytes spill loads"
    [ "$name" != "$MOCK_NVCC_SERIALISED" ] || echo "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are" \
        "serialized due to insufficient register resources for the wgmma pipeline in the function 'kernel_of_$name'"
    echo "ptxas info    : Used 168 registers, used 1 barriers, $spill bytes cumulative stack size, 576 bytes cmem[0]"
    ;;
esac >&2
if [ "$name" = "$MOCK_NVCC_GARBAGE" ]; then
    printf %s "$MOCK_NVCC_TEXT" >"$output"
else
    symbols=$name
    functions="kgen_abi_version kgen_append_kv kgen_bwd kgen_bwd_workspace kgen_fwd kgen_fwd_workspace kgen_last_error kgen_variants"
    [ "$name" != kgen_dispatch ] || symbols="$name ${MOCK_NVCC_DISPATCHER-$functions}"
    {
        printf '.section .nv_fatbin,"a"\n.incbin "%s"\n.text\n' "$source"
        for symbol in $symbols; do printf '.globl %s\n%s:\n.byte 0xc3\n' "$symbol" "$symbol"; done
    } | as -o "$output"
fi
[ -z "$MOCK_NVCC_PTX" ] || echo "$MOCK_NVCC_PTX" >"$name.ptx"
say "end $name"
