"""Clock, temperature and power of a card, from NVML through ctypes; None where they cannot be read."""

import ctypes

CLOCK_SM, TEMPERATURE_GPU = 1, 0


class Card:
    def __init__(self, pci_bus_id):
        self.handle = None
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
            handle = ctypes.c_void_p()
            found = self.nvml.nvmlInit_v2() == 0 and self.nvml.nvmlDeviceGetHandleByPciBusId_v2(
                pci_bus_id.encode(), ctypes.byref(handle)) == 0
            self.handle = handle if found else None
        except (OSError, AttributeError):
            pass

    def read(self, function, *kind):
        if self.handle is None:
            return None
        value = ctypes.c_uint()
        try:
            code = getattr(self.nvml, function)(self.handle, *kind, ctypes.byref(value))
        except AttributeError:
            return None
        return value.value if code == 0 else None

    def state(self):
        """The state as kgen's rows have it."""
        power = self.read("nvmlDeviceGetPowerUsage")
        return {
            "sm_clock_mhz": self.read("nvmlDeviceGetClockInfo", CLOCK_SM),
            "temperature_c": self.read("nvmlDeviceGetTemperature", TEMPERATURE_GPU),
            "power_w": None if power is None else power / 1e3,
        }
