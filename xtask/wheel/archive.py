"""Writes a wheel file (binary distribution format 1.0, packaging.python.org) with its RECORD."""

import base64
import hashlib
import zipfile


def write(path, record_name, files):
    """``files`` are pairs of name and bytes, without the RECORD."""
    records = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in files:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            records.append(f"{name},sha256={digest},{len(data)}")
            # A fixed date, for reproducible builds.
            target.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
        records.append(f"{record_name},,")
        target.writestr(zipfile.ZipInfo(record_name, (1980, 1, 1, 0, 0, 0)), "\n".join(records) + "\n")
