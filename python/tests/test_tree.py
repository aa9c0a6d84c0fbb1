"""What stands in the package and elsewhere in the source tree is the same, and a wheel can be made. Skipped where there is no tree."""
import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "src/kernels/punica_kernels.h"


def load_library_module():
    """_library.py by itself: the package around it needs torch."""
    spec = importlib.util.spec_from_file_location("_library", ROOT / "python/punica_kernels/_library.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*command, **more):
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    assert done.returncode == 0, done.stdout
    return done.stdout


@unittest.skipUnless(HEADER.exists(), "no source tree")
class Tree(unittest.TestCase):
    def test_structures_are_those_of_the_header(self):
        """By what the C compiler says of their sizes, and of each field's place and size."""
        library = load_library_module()
        want, program = [library.MAX_PARTS], ["PUNICA_MAX_PARTS"]
        for name, ours in ("punica_sgmv_shape", library.Shape), ("punica_lora", library.LoraEntry):
            want.append(ctypes.sizeof(ours))
            program.append(f"sizeof({name})")
            for field, _ in ours._fields_:
                want += [getattr(ours, field).offset, getattr(ours, field).size]
                c = field.rstrip("_")       # `in` is a keyword of Python
                program += [f"offsetof({name}, {c})", f"sizeof((({name} *)0)->{c})"]
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "sizes.c")
            source.write_text("#include <stddef.h>\n#include <stdio.h>\n#include \"punica_kernels.h\"\nint main(void)\n{\n"
                              + "".join(f"    printf(\"%zu\\n\", (size_t)({p}));\n" for p in program) + "}\n")
            run(shutil.which("cc") or "gcc", "-I", HEADER.parent, "-o", Path(folder, "sizes"), source)
            got = list(map(int, run(Path(folder, "sizes")).split()))
        self.assertEqual(dict(zip(program, want)), dict(zip(program, got)))

    def test_functions_are_those_of_the_header(self):
        text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
        self.assertEqual(set(re.findall(r"(\w+)\([^()]*\);", text)),
                         set(re.findall(r"lib\.(punica_\w+)", (ROOT / "python/punica_kernels/_library.py").read_text())))

    def test_versions_agree(self):
        cmake = re.search(r"project\(punica VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())
        ours = re.search(r'^version = "(.*)"', (ROOT / "python/pyproject.toml").read_text(), re.M)
        self.assertEqual(cmake[1], ours[1])

    def test_a_wheel(self):
        """Of a library that is none: nothing in it is run."""
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder, "libpunica_kernels.so")
            library.write_bytes(b"not a library")
            run("sh", ROOT / "tools/wheel.sh", library, folder, env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"})
            wheel, = Path(folder).glob("punica_kernels-*-py3-none-linux_*.whl")
            with zipfile.ZipFile(wheel) as made:
                self.assertEqual(made.read("punica_kernels/libpunica_kernels.so"), library.read_bytes())
                info = wheel.name.split("-py3")[0] + ".dist-info"
                self.assertTrue({f"{info}/LICENSE", f"{info}/licenses/LICENSE"} & set(made.namelist()), "where setuptools puts it")
                described = made.read(f"{info}/METADATA").decode()
        self.assertIn("Project-URL: Paper, https://arxiv.org/", described)
        self.assertIn("pk.lora_add(plan, y, x)", described)


if __name__ == "__main__":
    unittest.main()
