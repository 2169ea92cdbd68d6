# Drives Salt's own evaluator over a clock that the caller sets: a case a line comes in as
# JSON, and what ran when goes out.
import _strptime
import datetime
import functools
import json
import logging
import os
import sys
import tempfile

import salt.utils.schedule as subject

real = subject.dateutil_parser
now = None


class Parser:
    """dateutil with the clock of the case for what a text leaves out."""

    known = {}

    @classmethod
    def parse(cls, text):
        if not isinstance(text, str):
            return real.parse(text)
        key = (text, now.date())
        if key not in cls.known:
            if len(cls.known) > 200000:
                cls.known.clear()
            cls.known[key] = real.parse(text, default=now.replace(hour=0, minute=0, second=0, microsecond=0))
        return cls.known[key]


class Functions(dict):
    def __contains__(self, name):
        return name.startswith("f.")


# An entry that never runs collects thousands of times that Salt parses anew at each look.
_strptime._strptime_datetime = functools.lru_cache(100000)(_strptime._strptime_datetime)

logging.disable(logging.CRITICAL)
subject.dateutil_parser = Parser
folder = tempfile.mkdtemp()


def moments(texts):
    """What dateutil makes of each text on each day; None: it refuses."""
    global now
    out = []
    for text in texts["moments"]:
        row = []
        for day in texts["days"]:
            now = datetime.datetime.fromisoformat(day)
            try:
                at = Parser.parse(text)
                row.append("zone" if at.tzinfo else at.isoformat())
            except (ValueError, TypeError, OverflowError):
                row.append(None)
        out.append(row)
    return {"moments": out}


def crons(case):
    """The next times of each expression; None: croniter refuses it."""
    out = []
    for text in case["crons"]:
        at = datetime.datetime.fromisoformat(case["now"])
        row = []
        try:
            for _ in range(case["count"]):
                at = subject.croniter.croniter(text, at).get_next(datetime.datetime)
                row.append(at.isoformat())
        except Exception as exc:
            row.append(None)
        out.append(row)
    return {"crons": out}


def onces(case):
    out = []
    for text, form in case["onces"]:
        try:
            out.append(datetime.datetime.strptime(text, form).isoformat())
        except Exception:
            out.append(None)
    return {"onces": out}


def year(case):
    global now
    opts = {
        "__role": "master",
        "id": "m_master",
        "cachedir": folder,
        "conf_file": os.path.join(folder, "master"),
        "loop_interval": case["tick"],
        "schedule": case["schedule"],
    }
    schedule = subject.Schedule(opts, Functions(), returners={}, utils={}, new_instance=True)
    ran, errors, running, drawn = [], {}, [], 0
    offset = 0

    def draw(low, high):
        nonlocal drawn
        if high < low:
            raise ValueError("empty range")
        drawn += 1
        return low + drawn * 7919 % (high - low + 1)

    def run(func, data, jid=None):
        if data.get("dry_run"):
            return
        ran.append(f"{data['name']} {offset} {func}")
        running.append((offset + case["lasts"], data["name"]))

    def at_work(_):
        return [{"schedule": name, "pid": os.getpid()} for end, name in running if end > offset]

    subject.random.randint = draw
    schedule._run_job = run
    subject.salt.utils.master.get_running_jobs = at_work
    begin = datetime.datetime.fromisoformat(case["start"])
    crash = ""
    for i in range(case["looks"]):
        now = begin + datetime.timedelta(seconds=offset)
        running[:] = [r for r in running if r[0] > offset]
        try:
            schedule.eval(now)
        except Exception as exc:
            crash = repr(exc)
            break
        for name, data in opts["schedule"].items():
            if isinstance(data, dict) and "_error" in data:
                errors[name] = data["_error"]
        offset += case["tick"]
        if case["jitter"] and i * 7919 % 11 == 0:
            offset += i % case["jitter"]
    return {"ran": ran, "crash": crash, "errors": errors}


for line in sys.stdin:
    case = json.loads(line)
    for kind in (moments, crons, onces):
        if kind.__name__ in case:
            print(json.dumps(kind(case)), flush=True)
            break
    else:
        print(json.dumps(year(case)), flush=True)
