"""Keeps the code that Jinja makes of templates.

Most of a rendering's time goes into making code of a text that is the same for all
minions. What was made is kept by the text and by all that the code depends on, so that a
changed file or option finds nothing old. Jinja computes what is constant while it makes the
code, and filters that look at the clock, chance or files would be computed once for
all: code is kept only of templates whose filters and tests compute and are Salt's or
Jinja's own (FILTERS and TESTS of reads.py).
"""

import contextlib
import marshal
import operator
import sys

# The options of an environment that alter the code made in it.
OPTIONS = (
    "block_start_string block_end_string variable_start_string variable_end_string"
    " comment_start_string comment_end_string line_statement_prefix line_comment_prefix"
    " trim_blocks lstrip_blocks newline_sequence keep_trailing_newline autoescape"
    " undefined optimized is_async intercepted_binops intercepted_unops"
    " code_generator_class template_class context_class"
).split()


class JinjaCode:
    """The code of templates. What was not used for longest makes room."""

    MOST, MOST_BYTES = 500, 16 << 20
    UNPACKED = 5  # bytes of memory, at most, that a byte of packed code takes

    def __init__(self):
        import jinja2.defaults
        import jinja2.environment
        import jinja2.nodes
        import jinja2.sandbox

        self.nodes = jinja2.nodes
        self.policies = jinja2.defaults.DEFAULT_POLICIES
        self.sandbox = jinja2.sandbox.SandboxedEnvironment
        self.make = jinja2.environment.Environment.compile
        known = self.sandbox()
        self.options = operator.attrgetter(*(option for option in OPTIONS if hasattr(known, option)))
        self.kept = {}  # key: code, the functions it was made with, and its size
        self.size = 0
        self.off = False

    @contextlib.contextmanager
    def unused(self, off):
        """Within it, code is made each time."""
        self.off = off
        try:
            yield
        finally:
            self.off = False

    def install(self):
        """Has all environments of this process use what is kept."""
        import jinja2.environment

        def compile_template(env, source, name=None, filename=None, raw=False, defer_init=False):
            key = None
            if isinstance(source, str) and not raw and not self.off:
                key = self.key(env, source, name, filename, defer_init)
            if key is None:
                return self.make(env, source, name, filename, raw, defer_init)
            return self.code(key, env, source, name, filename, defer_init)

        jinja2.environment.Environment.compile = compile_template

    def key(self, env, *given):
        """All that the code depends on but filters and tests; None when that is not known."""
        # Not for a class of its own: what records a template looks it through while it is made.
        if type(env) is not self.sandbox or callable(env.autoescape) or env.policies != self.policies:
            return None
        extensions = tuple(sorted(map(type, env.extensions.values()), key=str))
        if not all(owned(extension, *HOMES) for extension in extensions):
            return None
        finalize = unbound(env.finalize)
        if finalize is not None and not owned(finalize, *HOMES):
            return None
        key = (given, extensions, finalize, self.options(env))
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def code(self, key, env, source, name, filename, defer_init):
        entry = self.kept.pop(key, None)
        if entry and all(function(env, *of) is known for of, known in entry[1].items()):
            self.kept[key] = entry  # as the one used last
            return entry[0]
        if entry:
            self.size -= entry[2]
        try:
            tree = env._parse(source, name, filename)
            functions = self.functions(env, tree)
            code = self.make(env, tree, name, filename, False, defer_init)
        except Exception:  # pylint: disable=broad-except
            # Its error shows the text, and is as without this class.
            return self.make(env, source, name, filename, False, defer_init)
        if functions is not None:
            self.keep(key, code, functions, self.memory(source, code))
        return code

    def functions(self, env, tree):
        """The filters and tests of a template; None when it may not be kept."""
        found = {}
        for kind, node, names in (("filters", self.nodes.Filter, FILTERS), ("tests", self.nodes.Test, TESTS)):
            for used in tree.find_all(node):
                of = function(env, kind, used.name)
                if used.name not in names or not owned(of, *HOMES):
                    return None
                found[(kind, used.name)] = of
        return found

    def memory(self, source, code):
        """The bytes that an entry takes, rather too many than too few."""
        entry = 2000  # its key, its functions and its places in dictionaries
        return entry + sys.getsizeof(source) + self.UNPACKED * len(marshal.dumps(code))

    def keep(self, key, code, functions, size):
        if size > self.MOST_BYTES // 4:
            return
        self.kept[key] = (code, functions, size)
        self.size += size
        while len(self.kept) > self.MOST or self.size > self.MOST_BYTES:
            self.size -= self.kept.pop(next(iter(self.kept)))[2]


def function(env, kind, name):
    """A filter or test."""
    return unbound(getattr(env, kind).get(name))


def unbound(function):
    """What an extension has bound to itself: each environment has an extension of its own."""
    return getattr(function, "__func__", function)
