"""Makes the py3-none-any wheel from a native one: the same Python files and metadata without the library. Prints its path.

pip installs it where there is no native wheel: the program runs unprofiled, with one warning.
"""

import os
import sys
import zipfile

import archive


def universal(text):
    """The WHEEL file with the tag of any interpreter and platform."""
    lines = [line for line in text.splitlines() if not line.startswith(("Tag:", "Root-Is-Purelib:"))]
    return "\n".join([line for line in lines if line] + ["Root-Is-Purelib: true", "Tag: py3-none-any", ""])


def main():
    (native,) = sys.argv[1:]
    folder, name = os.path.split(native)
    distribution, version = name.split("-")[:2]
    made = os.path.join(folder, f"{distribution}-{version}-py3-none-any.whl")
    record_name = f"{distribution}-{version}.dist-info/RECORD"
    files = []
    with zipfile.ZipFile(native) as source:
        for file in source.namelist():
            if file.endswith(".so") or file == record_name or ".libs/" in file:
                continue
            data = source.read(file)
            if file.endswith(".dist-info/WHEEL"):
                data = universal(data.decode()).encode()
            files.append((file, data))
    archive.write(made, record_name, files)
    print(made)


if __name__ == "__main__":
    main()
