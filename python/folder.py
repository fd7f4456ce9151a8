"""Prints where below PREFIX the Python that runs this looks for modules: python3 -I folder.py PREFIX

It asks Python itself, because meson does not know the answer: Python on Debian looks in lib/python3.11/dist-packages
below /usr/local and in lib/python3/dist-packages below /usr; others look in site-packages.  If Python does not look below
PREFIX at all, this program prints the folder that a Python installed there would use, and exits with status 1.
"""
import os
import sys
import sysconfig


def folder(prefix, paths):
    """The first of paths that is a folder of modules directly below prefix; else None."""
    for path in paths:
        inside = os.path.relpath(path, prefix).split(os.sep)
        if inside[0] in ("lib", "lib64") and inside[-1] in ("dist-packages", "site-packages"):
            return path
    return None


if __name__ == "__main__":
    found = folder(sys.argv[1], sys.path)
    print(found or sysconfig.get_path("purelib", "posix_prefix", {"base": sys.argv[1]}))
    sys.exit(0 if found else 1)
