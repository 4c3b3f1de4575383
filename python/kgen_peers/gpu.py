"""PyTorch and the GPU."""

import gc

from kgen_peers.card import Card
from kgen_peers.errors import Absent, first_line, imported

torch = imported("torch", "install PyTorch for `--python`")
if not torch.cuda.is_available():
    raise Absent(f"PyTorch {torch.__version__} finds no GPU")

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.float8_e4m3fn}


class Event:
    def __init__(self):
        self.event = torch.cuda.Event(enable_timing=True)
        self.record, self.wait = self.event.record, self.event.synchronize

    def ms_until(self, later):
        return self.event.elapsed_time(later.event)


class Device:
    """The first GPU."""

    name = "cuda"
    event = staticmethod(Event)

    def __init__(self):
        properties = torch.cuda.get_device_properties(0)
        self.l2_bytes = properties.L2_cache_size
        place = [getattr(properties, f"pci_{part}_id", 0) for part in ("domain", "bus", "device")]
        self.card = Card("{:04x}:{:02x}:{:02x}.0".format(*place))

    def capture(self, act):
        """A function that replays `act` as a CUDA graph; None if it cannot be captured."""
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                act()
        except Exception as error:  # libraries raise their own errors while a stream is captured
            print(f"not captured: {first_line(error)}")
            torch.cuda.synchronize()
            return None
        return graph.replay

    def peak_bytes(self):
        return torch.cuda.max_memory_allocated()


def forget():
    """Gives all unused memory back."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
