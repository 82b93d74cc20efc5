"""The settings that the built programs know."""
import re
import subprocess


class ProgramFlags:
    def __init__(self, programs):
        self._programs, self._known = programs, {}

    def known(self, program):
        if program not in self._known:
            said = subprocess.run([self._programs / program, "--help"], capture_output=True,
                                  text=True, check=True).stdout
            self._known[program] = set(re.findall(r"--([a-z][a-z-]+)", said))
        return self._known[program]

    def unknown(self, words, environment=()):
        """What of a command line, and of the names of variables, its program does not know."""
        known = self.known(words[0])
        flags = [word[2:].split("=")[0] for word in words[1:]]
        flags += [name.removeprefix("HILBERT_RING_").lower().replace("_", "-")
                  for name in environment]
        return [flag for flag in flags if flag not in known]
