"""Prints the folder below PREFIX in which this Python looks for modules: python3 -I folder.py PREFIX

Meson does not know this folder.  Python on Debian looks in lib/python3.11/dist-packages below /usr/local and in
lib/python3/dist-packages below /usr; on other systems it looks in site-packages.  If this Python does not look below
PREFIX at all, the program prints the folder that a Python installed in PREFIX would use, and exits with status 1.
"""
import os
import sys
import sysconfig


def folder(prefix, paths):
    """Returns the first path that is a folder of modules in lib or lib64 below prefix, or None."""
    for path in paths:
        inside = os.path.relpath(path, prefix).split(os.sep)
        if inside[0] in ("lib", "lib64") and inside[-1] in ("dist-packages", "site-packages"):
            return path
    return None


if __name__ == "__main__":
    found = folder(sys.argv[1], sys.path)
    print(found or sysconfig.get_path("purelib", "posix_prefix", {"base": sys.argv[1]}))
    sys.exit(0 if found else 1)
