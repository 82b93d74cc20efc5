"""Checks the library folders in programs and shared libraries (RUNPATH, RPATH)."""
import os
import re
import subprocess


def wrong_run_paths(files):
    """Returns {file: folders} of files with an empty or relative folder, which means the current folder."""
    wrong = {}
    for file in files:
        shown = subprocess.run(["readelf", "--dynamic", "--wide", file], capture_output=True, text=True, check=True,
                               env={**os.environ, "LC_ALL": "C"}).stdout
        for folders in re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]$", shown, re.MULTILINE):
            if not all(folder.startswith("/") for folder in folders.split(":")):
                wrong[str(file)] = folders
    return wrong
