"""Types TAB into interactive shells, in folders with hostile names.

    completion_tabs.py FP8LAB SHELL FOLDER      SHELL: bash, bash-completion, zsh, fish

A stand-in for fp8lab on PATH records its arguments, so each case tells what the completed line
means to the shell. Each line is typed whole; the stand-in's record is the event awaited.
"""
import os
import pty
import select
import sys
import time

PROGRAM, SHELL, FOLDER = sys.argv[1], sys.argv[2], os.path.abspath(sys.argv[3])
DEADLINE_S = 120
RUN = "20261121T010203Z-tiny-0badcafe"
LIVE = "20271121T010203Z-live-0badcafe"
HOSTILE = ["$(touch PWNED)", "`touch PWNED`", "a;touch PWNED;", "b|touch PWNED", "c>PWNED",
            "d $(touch PWNED)e", "f'$(touch PWNED)'", 'g"$(touch PWNED)"', "h*", "i?", "j{k,l}",
            "m\\$(touch PWNED)", "n&touch PWNED&", "~root", "o\tp", "q\x1b]0;r", "!!"]

# The text before the TAB of each case, and the arguments that the program must get.
CASES = [(["show", RUN[:10]], RUN),
         (["show", "la"], "last"),
         (["watch", LIVE[:10]], LIVE),
         (["sh"], "show"),
         (["run", "--launch", "pod"], "podman"),
         (["check", "plain"], "plain file.lua"),
         (["check", "zz"], "zz$(touch PWNED).lua"),
         (["verify", "yy"], "yy`touch PWNED` $HOME.tar.zst"),
         (["verify", "uu"], "uu'\"$(touch PWNED);touch PWNED*"),
         (["verify", "\\$\\(to"], "$(touch PWNED).tar.zst"),
         (["run", "--resume", "2026"], RUN),
         (["show", "runs/\\$\\("], "runs/$(touch PWNED).tar.zst"),
         (["verify", "runs/d"], "runs/d $(touch PWNED)e.tar.zst")]


def set_up():
    os.makedirs(FOLDER + "/here/runs/" + LIVE)
    os.makedirs(FOLDER + "/here/runs/" + LIVE + ".ckpt")
    os.makedirs(FOLDER + "/bin")
    os.makedirs(FOLDER + "/home")
    for name in [RUN] + HOSTILE:
        open(f"{FOLDER}/here/runs/{name}.tar.zst", "w").close()
    for given, want in CASES:
        if given[0] in ("check", "verify"):
            open(f"{FOLDER}/here/{want}", "w").close()
    with open(FOLDER + "/bin/fp8lab", "w") as f:
        f.write(f"#!/bin/sh\n[ \"$1\" != completion ] || exec '{PROGRAM}' \"$@\"\n"
                f"printf '%s\\0' \"$@\" >'{FOLDER}/got.part'\n"
                f"mv '{FOLDER}/got.part' '{FOLDER}/got'\n")
    os.chmod(FOLDER + "/bin/fp8lab", 0o755)


def start():
    words = {"bash": ["bash", "--norc", "--noprofile", "-i"],
             "bash-completion": ["bash", "--norc", "--noprofile", "-i"],
             "zsh": ["zsh", "-f", "-i"],
             "fish": ["fish", "--no-config", "-i"]}[SHELL]
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(FOLDER + "/here")
        env = {"HOME": FOLDER + "/home", "PATH": FOLDER + "/bin:/usr/bin:/bin", "TERM": "xterm",
               "LANG": "C.UTF-8", "ZDOTDIR": FOLDER + "/home", "XDG_CONFIG_HOME": FOLDER + "/home",
               "XDG_DATA_HOME": FOLDER + "/home"}
        os.execvpe(words[0], words, env)
    return pid, fd


def say(fd, text):
    os.write(fd, text.encode())


class Screen:
    """The output of the shell."""

    def __init__(self, fd):
        self.fd, self.text = fd, b""

    def until(self, done, what):
        end = time.monotonic() + DEADLINE_S
        while not done():
            if time.monotonic() > end:
                sys.exit(f"{SHELL}: {what}: no result within {DEADLINE_S} s; the screen: "
                         f"{self.text[-2000:]!r}")
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    self.text += os.read(self.fd, 65536)
                except OSError:
                    sys.exit(f"{SHELL}: {what}: the shell ended; the screen: {self.text[-2000:]!r}")


def arguments():
    with open(FOLDER + "/got", "rb") as f:
        return [word.decode() for word in f.read().split(b"\0")[:-1]]


def run_line(fd, screen, line, what):
    """Types a line that starts fp8lab, and returns the arguments that fp8lab got."""
    if os.path.exists(FOLDER + "/got"):
        os.unlink(FOLDER + "/got")
    say(fd, line)
    screen.until(lambda: os.path.exists(FOLDER + "/got"), what)
    return arguments()


def main():
    set_up()
    pid, fd = start()
    screen = Screen(fd)
    source = {"bash": "source <(fp8lab completion bash)",
              "bash-completion": ". /usr/share/bash-completion/bash_completion; "
                                 "source <(fp8lab completion bash)",
              "zsh": "source <(fp8lab completion zsh)",
              "fish": "fp8lab completion fish | source"}[SHELL]
    run_line(fd, screen, source + "; fp8lab ready\r", "the completion is loaded")
    failed = []
    for given, want in CASES:
        got = run_line(fd, screen, "fp8lab " + " ".join(given) + "\t\r", f"{given} TAB")
        if got != given[:-1] + [want]:
            failed.append(f"{given} TAB: the program got {got}, wanted {want!r}")
    # All candidates, no candidate, candidates for a quoted prefix. A second TAB after a completed
    # name, which zsh would expand. The line is discarded, and the test waits for the next prompt.
    for line in ["fp8lab show \t\t\t", "fp8lab show $\t\t", "fp8lab show \\$\\(\t\t\t",
                 "fp8lab verify uu\t\t\t", "fp8lab verify runs/\t\t\t",
                 "fp8lab run --resume \t\t\t", "fp8lab check \t\t\t", "fp8lab \t\t\t"]:
        say(fd, line)
        got = run_line(fd, screen, "\x15fp8lab next\r", f"{line!r}")
        if got != ["next"]:
            failed.append(f"{line!r}: the program got {got} after it")
    for where in ("here", "home"):
        if "PWNED" in os.listdir(f"{FOLDER}/{where}"):
            failed.append("a name was run as a command")
    os.close(fd)
    os.waitpid(pid, 0)
    for text in failed:
        print(f"FAILED: {SHELL}: {text}")
    sys.exit(1 if failed else 0)


main()
