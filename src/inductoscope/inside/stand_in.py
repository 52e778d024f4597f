"""A library for what Python cannot pretend: the device guard and hooks of torch's C++ side.

A torch without CUDA has neither; those of a torch with CUDA look for a driver. A small library
provides ones that do nothing. It is compiled once, and kept in a folder that only its owner can
write to, because loading the library executes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import stat
import subprocess
import tempfile
from pathlib import Path

from inductoscope.errors import ToolFailure
from inductoscope.packages.cpp_library import installed_compiler

_COMPILE_SECONDS = 300

# A torch with CUDA registers its own guard on import, so the stand-in registers its guard again
# afterwards. The hooks of torch are overridden by priority.
_SOURCE = r"""
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

static DeviceIndex current = 0;
static DeviceIndex devices = 1;

static DeviceIndex exchange(DeviceIndex device) {
  const DeviceIndex before = current;
  if (device >= 0 && device < devices) current = device;
  return before;
}
static Stream stream(Device device) { return Stream(Stream::DEFAULT, device); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device device) const override {
    return Device(DeviceType::CUDA, exchange(device.index()));
  }
  Device getDevice() const override { return Device(DeviceType::CUDA, current); }
  void setDevice(Device device) const override { exchange(device.index()); }
  void uncheckedSetDevice(Device device) const noexcept override { exchange(device.index()); }
  Stream getStream(Device device) const noexcept override { return stream(device); }
  Stream getDefaultStream(Device device) const override { return stream(device); }
  Stream getNewStream(Device device, int) const override { return stream(device); }
  Stream exchangeStream(Stream given) const noexcept override { return given; }
  DeviceIndex deviceCount() const noexcept override { return devices; }
  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
};
extern "C" int exchange_device(int device) { return exchange(device); }
extern "C" void have_devices(int count) { devices = count; }
extern "C" void use_stand_in() {
  static c10::impl::DeviceGuardImplRegistrar guard(DeviceType::CUDA, new Guard());
}

struct Hooks : at::CUDAHooksInterface {
  Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return false; }
  DeviceIndex deviceCount() const override { return devices; }
  DeviceIndex current_device() const override { return current; }
  DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(DeviceIndex device) const override { exchange(device); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override { return exchange(device); }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override { return exchange(device); }
  int getNumGPUs() const override { return devices; }
  void deviceSynchronize(DeviceIndex) const override {}
  // Not all versions of torch ask for these.
  long versionCuDNN() const { return 0; }
  long versionRuntimeCuDNN() const { return 0; }
  long versionCuDNNFrontend() const { return 0; }
};
namespace at {
C10_REGISTER_TYPED_CLASS_WITH_PRIORITY(
    CUDAHooksRegistry, "CUDAHooks", c10::REGISTRY_PREFERRED, ::Hooks)
}
"""


class StandIn:
    """The library, loaded before torch; notify it once torch has been imported."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def take_over(self) -> None:
        """Register the stand-in as the guard of the device."""
        self._library.use_stand_in()

    def have_devices(self, count: int) -> None:
        """Set the number of devices; the first one becomes the current one."""
        self._library.have_devices(count)

    def exchange_device(self, device: int) -> int:
        """Make a device the current one and return the previous one."""
        return int(self._library.exchange_device(device))


def load_stand_in() -> StandIn:
    """Load the library into this process, building it if needed. torch is not imported yet."""
    root = _torch_root()
    compiler = _compiler()
    name = f"{_key(root, compiler)}.so"
    folder = _own_folder()
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="inductoscope-target-") as temporary:
            return StandIn(ctypes.CDLL(str(_build(root, compiler, Path(temporary), name))))
    library = folder / name
    if not _is_own_file(library):
        library = _build(root, compiler, folder, name)
    return StandIn(ctypes.CDLL(str(library)))


def _torch_root() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise ToolFailure("torch is not installed. Install it (a CPU build will do).")
    return Path(spec.submodule_search_locations[0])


def _compiler() -> list[str]:
    compiler = installed_compiler()
    if compiler is None:
        raise ToolFailure(
            "Pretending a device needs a C++ compiler once, and there is none. "
            "Install g++, or name one with CXX."
        )
    return compiler


def _key(root: Path, compiler: list[str]) -> str:
    version = subprocess.run([*compiler, "--version"], capture_output=True, text=True).stdout
    torch = importlib.metadata.version("torch")
    parts = (_SOURCE, torch, str(root), " ".join(compiler), version, platform.machine())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


# --- a folder of the user's own -------------------------------------------------------------------


def _own_folder() -> Path | None:
    """Return the folder of built libraries; None if no place is safe."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    folder = Path(cache) / "inductoscope" / "target"
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and _is_ours(found):
            return folder
    return None


def _is_own_file(path: Path) -> bool:
    with contextlib.suppress(OSError):
        found = path.lstat()
        return stat.S_ISREG(found.st_mode) and _is_ours(found)
    return False


def _is_ours(found: os.stat_result) -> bool:
    """Check whether a file or folder is owned by this user and writable by no one else."""
    writable_by_others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return found.st_uid == os.geteuid() and not writable_by_others


def _build(root: Path, compiler: list[str], folder: Path, name: str) -> Path:
    """Compile the library in a temporary folder, then rename it into place atomically."""
    with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as scratch:
        source, built = Path(scratch, "stand_in.cpp"), Path(scratch, "stand_in.so")
        source.write_text(_SOURCE, "utf-8")
        command = [*compiler, "-shared", "-fPIC", "-std=c++20", "-O1", str(source)]
        command += [f"-I{root}/include", f"-L{root}/lib", "-lc10", "-ltorch_cpu"]
        command += [f"-Wl,-rpath,{root}/lib", "-o", str(built)]
        try:
            subprocess.run(
                command, check=True, capture_output=True, text=True, timeout=_COMPILE_SECONDS
            )
        except (OSError, subprocess.SubprocessError) as error:
            said = str(getattr(error, "stderr", "") or error).strip()[-1000:]
            raise ToolFailure(
                f"The stand-in for the device does not compile with {compiler[0]}: {said}"
            ) from error
        built.chmod(0o700)
        return built.replace(folder / name)
