# SPDX-License-Identifier: Apache-2.0
# Hostile values for every option of every verb: each run ends within seconds, without a signal or a
# bug's exit code, with one error of one line of text; a value that is no number is refused by name for
# options that take one. One value for each option, in turn; all with OT_TESTS=full.
#   tests/cli/hostile_options.py ORTHANT
import concurrent.futures, os, re, subprocess, sys, tempfile

orthant = os.path.realpath(sys.argv[1])
full = os.environ.get("OT_TESTS") == "full"
words = ["", " ", "x", "--", "=", "%s%n", "$(id)", "../../..", "1,2", "1e", "0x", "1..", "nan nan", "\x01\x1b[2J", "\n", b"\xff\xfe",
         "a" * 100000, "\u202e"]
numbers = ["-1", "0", "-0", "nan", "-nan", "inf", "-inf", "1e400", "-1e400", "1e-400", "0.5", "9223372036854775807",
           "9223372036854775808", "18446744073709551616", "-9223372036854775809", "999999999999999999999999"]
files = [".", "/dev/null", "absent/file", "/", "denied"]
refused = [w for w in words if w not in ("1,2",)]


def options_of(verb):
    text = subprocess.run([orthant, "help", verb], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^  (--[a-z0-9-]+) (\S+)", text, re.M)


def try_one(case):
    verb, option, kind, value = case
    told = (verb, option, value if len(value) < 60 else "long text")
    try:
        run = subprocess.run([orthant, verb, option, value, "absent.yaml"], capture_output=True, stdin=subprocess.DEVNULL, timeout=20)
    except subprocess.TimeoutExpired:
        return f"{told}: runs for 20 s"
    errors = [line for line in run.stderr.split(b"\n") if line.startswith(b"error: ")]
    if run.returncode not in (0, 1, 2, 3, 4):
        return f"{told}: exit code {run.returncode}: {run.stderr[-300:]}"
    if run.returncode and len(errors) != 1:
        return f"{told}: {len(errors)} errors: {run.stderr[-300:]}"
    if re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", run.stderr):
        return f"{told}: a control character is printed: {run.stderr[-300:]}"
    try:
        run.stderr.decode()
    except UnicodeDecodeError:
        return f"{told}: not UTF-8: {run.stderr[-300:]}"
    if len(run.stderr) > 8000:
        return f"{told}: {len(run.stderr)} bytes of errors"
    if kind in ("N", "S") and value in refused and (run.returncode != 2 or option.encode() not in run.stderr):
        return f"{told}: exit code {run.returncode}, and the option is not named: {run.stderr[-300:]}"
    return None


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    open("denied", "w").close()
    os.chmod("denied", 0)
    overview = subprocess.run([orthant, "help"], capture_output=True, text=True, check=True).stdout
    verbs = re.findall(r"^  ([a-z]+) {2,}", overview.split("verbs:")[1].split("\n\n")[0], re.M)
    cases, count = [], 0
    for verb in [v for v in verbs if v != "help"]:
        for option, kind in options_of(verb):
            values = words + numbers + files
            count += 1
            cases += [(verb, option, kind, v) for i, v in enumerate(values) if full or i == count * 7 % len(values)]
    assert len(verbs) > 15 and count > 150, (verbs, count)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        faults = [fault for fault in pool.map(try_one, cases) if fault]
    for fault in faults[:40]:
        print("FAILED:", fault)
    print(f"{len(verbs)} verbs, {count} options, {len(cases)} values, {len(faults)} faults")
    sys.exit(1 if faults else 0)
