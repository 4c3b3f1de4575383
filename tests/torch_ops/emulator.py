"""The emulator in libkgen_vllm.so: the memory that a call may access, and the emulator's reports."""

import ctypes

import torch


class Emulator:
    """The emulated device. Its capability and multiprocessors stay until the next `Emulator` is created."""

    def __init__(self, path, capability=80):
        self.lib = ctypes.CDLL(str(path))
        self.lib.kgen_emulator_tensor.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.lib.kgen_emulator_report.restype = ctypes.c_char_p
        self.lib.kgen_emulator_reset.argtypes = [ctypes.c_uint64]
        self.lib.kgen_test_launches.restype = ctypes.c_char_p
        self.device(capability)

    def device(self, capability):
        self.lib.kgen_emulator_device(capability)

    def run(self, op, arguments, written=()):
        """Calls `op(*arguments)`, which may read all tensors among the arguments, and write those in `written` and its
        own allocations. Raises an exception with the emulator's report if there are violations."""
        self.lib.kgen_emulator_reset(1)
        self.lib.kgen_test_launches()
        storages = {}
        for tensor in arguments:
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                storages.setdefault(storage.data_ptr(), [storage, False])
        for tensor in written:
            storages[tensor.untyped_storage().data_ptr()][1] = True
        for storage, writable in storages.values():
            if storage.nbytes() > 0:
                self.lib.kgen_emulator_tensor(b"an argument", storage.data_ptr(), storage.nbytes(), None, 1, int(writable))
        result = op(*arguments)
        report = self.lib.kgen_emulator_report()
        if report:
            raise RuntimeError(f"the emulator: {report.decode(errors='replace')}")
        return result

    def launches(self):
        """The launches of the last `run`: `kind:blocks`, in order."""
        return self.lib.kgen_test_launches().decode().split()
