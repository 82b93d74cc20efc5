"""The flags of the built programs."""
import re
import subprocess


class ProgramFlags:
    def __init__(self, programs):
        self._programs, self._help = programs, {}

    def _helps(self, program):
        if program not in self._help:
            self._help[program] = subprocess.run(
                [self._programs / program, "--help"], capture_output=True, text=True,
                check=True).stdout
        return self._help[program]

    def path(self, program):
        return self._programs / program

    def known(self, program):
        return set(re.findall(r"--([a-z][a-z-]+)", self._helps(program)))

    def default(self, program, flag):
        (value,) = re.findall(rf"^ *--{flag} .*=(\S+)$", self._helps(program), re.MULTILINE)
        return value

    def unknown(self, words, environment=()):
        """Returns the flags of a command line, and of variables' names, that its program does not know."""
        known = self.known(words[0])
        flags = [word[2:].split("=")[0] for word in words[1:]]
        flags += [name.removeprefix("HILBERT_RING_").lower().replace("_", "-")
                  for name in environment]
        return [flag for flag in flags if flag not in known]
