"""Prints where below PREFIX the Python that runs this looks for modules: python3 -I folder.py PREFIX

Asked of Python and not of meson: Debian looks below /usr/local in lib/python3.11/dist-packages and
below /usr in lib/python3/dist-packages, others in site-packages.  Below a prefix that it does not
look at, the folder that it would have there, and the exit status is 1.
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
