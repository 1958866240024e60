"""How wide the accesses of the kernels are, by what nvcc makes of them.

Usage: ptx_test.py FILE.ptx...

A kernel that goes over dense elements in packs reads or writes 16 bytes at a
time somewhere: its widest elements, the others being in step. So do sums over
dense elements. Fails with the kernels that do not.
"""

import re
import sys

KERNEL = re.compile(r"\.entry (\S+?)\((.*?)\n\}", re.DOTALL)
ACCESS = re.compile(r"\b(?:ld|st)\.global\S*?(?:\.v(\d))?\.[a-z](\d+)\s")
# By their names: those of launch_gpu.h that take packs, and sums.
PACKED = re.compile(r"ForEachKernelILi([2-9]|\d\d)E|PartialSumsKernelIN")

ACCESS_BYTES = 16


def widest_access(body):
    """The most bytes that one access to global memory takes."""
    return max((int(lanes or 1) * int(bits) // 8
                for lanes, bits in ACCESS.findall(body)), default=0)


def main(paths):
    found = 0
    narrow = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            kernels = KERNEL.findall(file.read())
        for name, body in kernels:
            if not PACKED.search(name):
                continue
            found += 1
            if widest_access(body) != ACCESS_BYTES:
                narrow.append(f"{name}: {widest_access(body)} bytes")
    print(f"{found} kernels take packs, of these {len(narrow)} less than "
          f"{ACCESS_BYTES} bytes at once")
    print("\n".join(narrow))
    return 1 if narrow or found == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
