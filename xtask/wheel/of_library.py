"""Makes a wheel from a library that cargo built, and prints its path: maturin would compile with other features.

Arguments: library, version, directory of the wheel, its platform (by default that of this machine).
"""

import os
import sys
import sysconfig

import archive

PACKAGE = os.path.join(os.path.dirname(__file__), "../../bindings-python/python/spanprof")


def python_files():
    for name in sorted(os.listdir(PACKAGE)):
        if name.endswith((".py", ".pyi", ".typed")):
            with open(os.path.join(PACKAGE, name), "rb") as file:
                yield f"spanprof/{name}", file.read()


def main():
    library, version, directory, *platforms = sys.argv[1:]
    [platform] = platforms or [sysconfig.get_platform().replace("-", "_").replace(".", "_")]
    tag = f"cp39-abi3-{platform}"
    made = os.path.join(directory, f"spanprof-{version}-{tag}.whl")
    info = f"spanprof-{version}.dist-info"
    with open(library, "rb") as file:
        native = file.read()
    texts = {
        "METADATA": f"Metadata-Version: 2.1\nName: spanprof\nVersion: {version}\nRequires-Python: >=3.9\n",
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: spanprof\nRoot-Is-Purelib: false\nTag: {tag}\n",
        "entry_points.txt": "[console_scripts]\nspanprof=spanprof.__main__:main\n",
    }
    metadata = [(f"{info}/{name}", text.encode()) for name, text in texts.items()]
    archive.write(made, f"{info}/RECORD", [*python_files(), ("spanprof/_spanprof.abi3.so", native), *metadata])
    print(made)


if __name__ == "__main__":
    main()
