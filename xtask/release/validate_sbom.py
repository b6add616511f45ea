"""Validates SBOMs in JSON with the schema of CycloneDX 1.6. Fails with the first error of a file."""

import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator


def main():
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            error = validator.validate_str(file.read())
        if error:
            sys.exit(f"{path}: no CycloneDX 1.6: {error}")


if __name__ == "__main__":
    main()
