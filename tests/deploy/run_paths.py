"""Folders that programs and shared libraries name to the loader (RUNPATH, RPATH)."""
import os
import re
import subprocess


def wrong_run_paths(files):
    """{file: folders}, of those files that name a folder that is empty or relative: the loader takes it for the current one."""
    wrong = {}
    for file in files:
        said = subprocess.run(["readelf", "--dynamic", "--wide", file], capture_output=True, text=True, check=True,
                              env={**os.environ, "LC_ALL": "C"}).stdout
        for folders in re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]$", said, re.MULTILINE):
            if not all(folder.startswith("/") for folder in folders.split(":")):
                wrong[str(file)] = folders
    return wrong
