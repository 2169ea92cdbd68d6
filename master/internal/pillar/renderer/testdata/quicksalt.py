# Compares the functions of quicksalt.py with those of Salt that they stand for. Prints a line for
# each difference, and then how many calls of each function were compared.
import collections
import enum
import logging
import random
import string
import sys

import jinja2
import markupsafe
import salt.utils.args
import salt.utils.jinja
import salt.utils.templates
import salt.version

salts = {
    "undefined": salt.utils.jinja._get_strict_undefined,
    "finalizer": salt.utils.jinja.SerializerExtension.finalizer,
    "words": salt.utils.args.yamlify_arg,
    "contexts": salt.utils.templates.generate_sls_context,
}
quick = QuickSalt()
quick.install(salt.version.__version__)
quicks = {
    "undefined": salt.utils.jinja._get_strict_undefined,
    "finalizer": salt.utils.jinja.SerializerExtension.finalizer,
    "words": salt.utils.args.yamlify_arg,
    "contexts": salt.utils.templates.generate_sls_context,
}
for name, function in quicks.items():
    if function is salts[name]:
        print("not installed:", name)

rnd = random.Random(int(sys.argv[1]))
extension = salt.utils.jinja.SerializerExtension(jinja2.Environment())


class Text(str):
    pass


class Texts(list):
    pass


class Color(enum.IntEnum):
    RED = 1


Pair = collections.namedtuple("Pair", "a b")
UNDEFINED = [jinja2.StrictUndefined(name="x"), jinja2.Undefined(name="y")]
SCALARS = [0, 1, True, False, None, 1.0, -2, 1e16, 2**70, "", "a", "ä", Text("t"), Color.RED, b"b", markupsafe.Markup("<m>")]


def value(depth):
    kind = rnd.randrange(9) if depth else 0
    if kind < 2:
        return rnd.choice(UNDEFINED) if rnd.random() < 0.2 else rnd.choice(SCALARS)
    some = [value(depth - 1) for _ in range(rnd.randrange(4))]
    if kind < 4:
        return some
    if kind == 4:
        return tuple(some)
    if kind == 5:
        return Texts(some)
    if kind == 6:
        return Pair(value(depth - 1), value(depth - 1)) if rnd.random() < 0.5 else {str(i): x for i, x in enumerate(some)}
    if kind == 7:
        return collections.OrderedDict((str(i), x) for i, x in enumerate(some))
    return {rnd.choice(SCALARS) for _ in some}


def shown(x):
    """A value with the types of all that is in it."""
    if isinstance(x, jinja2.Undefined):
        return ("undefined", id(x))
    if isinstance(x, dict):
        return (type(x), [(shown(k), shown(v)) for k, v in x.items()])
    if isinstance(x, (list, tuple)):
        return (type(x), [shown(y) for y in x])
    if isinstance(x, (set, frozenset)):
        return (type(x), sorted(map(repr, map(shown, x))))
    return (type(x), repr(x))


class Log(logging.Handler):
    def emit(self, record):
        logged.append(record.getMessage())


logged = []
logging.getLogger().handlers = [Log()]


def outcome(function, args):
    """What comes of a call, and what it logs."""
    logged.clear()
    try:
        result = shown(function(*args))
    except Exception as exc:
        result = ("raises", type(exc), str(exc))
    return result, list(logged)


def word():
    if rnd.random() < 0.3:
        return rnd.choice("yes no on off y n true True NULL null None ~ 1 010 0x1f 1e3 1_000 .inf nan a:b a: - -a _a a\n é 12:30 2020-01-01 [a] {a} # a#b ! | --- ...".split(" "))
    return "".join(rnd.choice(string.ascii_letters + string.digits + "_-.:é \n") for _ in range(rnd.randrange(6)))


def path():
    parts = [rnd.choice(["a", "b.c", "init", "", "..", "ü", "p"]) for _ in range(rnd.randrange(5))]
    return rnd.choice([None, "/".join(parts), "/" + "/".join(parts) + ".sls", "/" + "/".join(parts) + "/init.sls"])


def name():
    return ".".join(rnd.choice(["a", "b", "c", "init", ""]) for _ in range(rnd.randrange(4)))


def context():
    sls = name()
    if rnd.random() < 0.5:
        return path(), sls
    return "/p/" + sls.replace(".", "/") + rnd.choice([".sls", "/init.sls"]), sls


made = {
    "undefined": lambda: (value(3),),
    "finalizer": lambda: (extension, value(3)),
    "words": lambda: (word(),),
    "contexts": context,
}
for which, arguments in made.items():
    compared = 0
    for _ in range(int(sys.argv[2])):
        args = arguments()
        want = outcome(salts[which], args)
        for again in range(2):
            got = outcome(quicks[which], args)
            if got != want:
                print("differs:", which, repr(args), "has", got, "wants", want)
            compared += 1
    print("compared:", which, compared)

changed = quicks["contexts"]("/p/a.sls", "a")
changed["tplfile"] = "other"
if quicks["contexts"]("/p/a.sls", "a") != salts["contexts"]("/p/a.sls", "a"):
    print("differs: contexts are shared")

for _ in range(3 * quick.MOST):
    quicks["contexts"]("/p/%d.sls" % rnd.randrange(10**9), "a")
kept = [c.cell_contents for c in quicks["contexts"].__closure__ if isinstance(c.cell_contents, dict)]
if len(kept) != 1 or not 0 < len(kept[0]) <= quick.MOST:
    print("differs: contexts are not bounded", [len(k) for k in kept])
