"""GPUs as a plug-in, on a machine without one: what the program says without a driver, and with a false one."""

import ctypes
import os
import shutil
import subprocess

import pytest

from server import GOLDEN, ROOT

BUILD = ROOT / "build" / "release"
PLUGIN = BUILD / "troupe-cuda.so"


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
        return True
    except OSError:
        return False


pytestmark = pytest.mark.skipif(has_driver(), reason="this machine has a driver")


def ask(program, *more, device="cuda:0", **environment):
    done = subprocess.run([program, "bench", "model", "--model", GOLDEN, "--prompt", "4", "--generate", "2", "--repeat", "1",
                           "--device", device, *more], capture_output=True, text=True, timeout=300, env=os.environ | environment)
    return done.returncode, done.stderr.strip().splitlines()


@pytest.fixture(scope="module")
def false_driver(tmp_path_factory):
    """A libcuda.so.1 that knows no GPU."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "cuda.c").write_text("""
#include <string.h>
int cuInit(unsigned flags) { return 100; } /* CUDA_ERROR_NO_DEVICE */
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
int cuNothing(void) { return 100; }
int cuGetExportTable(void** table, const void* id) { return 500; }
int cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long flags, int* status);
static void* find(const char* name) {
  if (!strcmp(name, "cuInit")) return (void*)cuInit;
  if (!strcmp(name, "cuDriverGetVersion")) return (void*)cuDriverGetVersion;
  if (!strcmp(name, "cuGetExportTable")) return (void*)cuGetExportTable;
  if (!strcmp(name, "cuGetProcAddress")) return (void*)cuGetProcAddress_v2;
  return (void*)cuNothing;
}
int cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long flags, int* status) {
  *function = find(name);
  if (status) *status = 0;
  return 0;
}
int cuGetProcAddress(const char* name, void** function, int version, unsigned long long flags) {
  return cuGetProcAddress_v2(name, function, version, flags, 0);
}
""", encoding="utf-8")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / "libcuda.so.1", folder / "cuda.c"], check=True)
    return {"LD_LIBRARY_PATH": str(folder)}


@pytest.fixture
def elsewhere(tmp_path):
    """The program in a folder of its own."""
    try:
        os.link(BUILD / "troupe", tmp_path / "troupe")
    except OSError:
        shutil.copy(BUILD / "troupe", tmp_path)
    return tmp_path / "troupe"


def test_without_a_driver_the_plugin_is_not_even_looked_for(elsewhere):
    assert ask(elsewhere) == (1, ["troupe: there is no device `cuda:0`: no NVIDIA driver was found"])
    assert ask(elsewhere, device="auto")[0] == 0
    code, said = ask(elsewhere, device="cuda")
    assert code == 1 and len(said) == 1 and "and cuda:N for NVIDIA GPU N" in said[0]


@pytest.mark.skipif(not PLUGIN.exists(), reason="built without CUDA")
def test_the_plugin_is_loaded_where_there_is_a_driver(false_driver):
    code, said = ask(BUILD / "troupe", **false_driver)
    assert code == 1 and len(said) == 1
    assert said[0].startswith("troupe: there is no device `cuda:0`: the NVIDIA driver")  # which only the plug-in asks
    assert ask(BUILD / "troupe", device="auto", **false_driver)[0] == 0


def test_a_missing_or_wrong_plugin_is_named(false_driver, elsewhere, tmp_path):
    code, said = ask(elsewhere, **false_driver)
    assert code == 1 and len(said) == 1
    assert "there is an NVIDIA driver, but troupe-cuda.so" in said[0] and str(tmp_path) in said[0]
    code, said = ask(elsewhere, device="auto", **false_driver)
    assert code == 0
    plugin = tmp_path / "troupe-cuda.so"
    plugin.write_bytes(b"no library")
    code, said = ask(elsewhere, **false_driver)
    assert code == 1 and len(said) == 1 and f"{plugin} cannot be loaded: " in said[0]
    for source, why in [("int other;", "is no plug-in of Troupe"),
                        ('const void* troupe_gpu_plugin(void) { static const void* made[] = {"0.0.1, another compiler", 0}; return made; }',
                         f"{plugin} is of another build (0.0.1, another compiler) than this program")]:
        plugin.unlink()
        subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-o", plugin, "-"], input=source, text=True, check=True)
        code, said = ask(elsewhere, **false_driver)
        assert code == 1 and len(said) == 1 and why in said[0], said


@pytest.mark.skipif(not PLUGIN.exists(), reason="built without CUDA")
def test_the_plugin_shows_nothing_but_its_entry_and_needs_no_cuda_library():
    defined = subprocess.run(["nm", "-D", "--defined-only", PLUGIN], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in defined.splitlines()] == ["troupe_gpu_plugin"]
    needed = subprocess.run(["objdump", "-p", PLUGIN], capture_output=True, text=True, check=True).stdout
    libraries = [line.split()[1] for line in needed.splitlines() if "NEEDED" in line]
    assert not [one for one in libraries if "cu" in one], libraries
