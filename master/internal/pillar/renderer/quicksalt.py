"""Answers the usual case of some of Salt's functions sooner.

Salt calls these functions for each template, each printed value or each missing key. For most
arguments their answer follows from the argument's type, or is the same each time. All other
arguments go to Salt's function. A template that is to be rendered as Salt does (the request's
"fresh") has Salt's functions alone.
"""

import contextlib
import functools
import re

# The releases whose functions are known to answer so.
KNOWN_RELEASES = ("3006.", "3007.", "3008.")

# Values of these types, and of no type derived from them, hold no other values.
PLAIN_TYPES = frozenset((str, int, float, bool, type(None)))

# Keys that are words to YAML, too, unless they are among those that it knows.
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)


def is_file_of(path, sls):
    """Reports whether a path is where Salt looks for an SLS."""
    name = sls.replace(".", "/")
    shortest = name != "" and "//" not in path and "/./" not in path
    return shortest and path.endswith((f"/{name}.sls", f"/{name}/init.sls"))


class QuickSalt:
    """The functions that are put in front of Salt's, and what they keep."""

    MOST = 1000  # kept answers of one function; then all of them go

    def __init__(self):
        self.off = False

    @contextlib.contextmanager
    def unused(self, off):
        """Within it, Salt's functions answer alone."""
        self.off = off
        try:
            yield
        finally:
            self.off = False

    def install(self, release):
        """Puts the functions in front of Salt's in this process."""
        if not release.startswith(KNOWN_RELEASES):
            return
        import salt.utils.args
        import salt.utils.jinja
        import salt.utils.templates

        self.put(salt.utils.jinja, "_get_strict_undefined", self.undefined_values)
        self.put(salt.utils.jinja, "_handle_strict_undefined", self.checked_functions)
        self.put(salt.utils.jinja.SerializerExtension, "finalizer", self.finalizer)
        self.put(salt.utils.templates, "Version", self.versions)
        self.put(salt.utils.templates, "generate_sls_context", self.sls_contexts)
        self.put(salt.utils.args, "yamlify_arg", self.words)

    def put(self, home, name, quick_of):
        salts = getattr(home, name, None)
        if salts is not None:
            setattr(home, name, functools.wraps(salts, updated=())(quick_of(salts)))

    def remember(self, known, key, answer):
        if len(known) >= self.MOST:
            known.clear()
        known[key] = answer
        return answer

    def undefined_values(self, salts):
        """The undefined values in a value: () for what can hold none."""

        def get_strict_undefined(value):
            if not self.off:
                if type(value) in PLAIN_TYPES:
                    return ()
                if type(value) in (list, tuple) and PLAIN_TYPES.issuperset(map(type, value)):
                    return ()
            return salts(value)

        return get_strict_undefined

    def checked_functions(self, salts):
        """The function for templates that Salt makes of one of Python's, such as zip."""
        known = {}

        def handle_strict_undefined(function):
            if self.off or not owned(function, "builtins", "itertools"):
                return salts(function)
            return known.get(function) or self.remember(known, function, salts(function))

        return handle_strict_undefined

    def finalizer(self, salts):
        """What is printed for a value: the value itself, unless it holds others."""

        def finalizer(extension, data):
            if type(data) in PLAIN_TYPES and not self.off:
                return data
            return salts(extension, data)

        return finalizer

    def versions(self, salts):
        known = {}

        def version(text):
            if self.off:
                return salts(text)
            return known.get(text) or self.remember(known, text, salts(text))

        return version

    def sls_contexts(self, salts):
        """The variables that follow from the path and the name of an SLS. Salt warns of other files."""
        known = {}

        def generate_sls_context(tmplpath, sls):
            if self.off or not (type(tmplpath) is type(sls) is str) or not is_file_of(tmplpath, sls):
                return salts(tmplpath, sls)
            key = (tmplpath, sls)
            return dict(known.get(key) or self.remember(known, key, salts(tmplpath, sls)))

        return generate_sls_context

    def words(self, salts):
        """What YAML makes of a key. Only words that stay what they are are kept."""
        known = {}

        def yamlify_arg(arg):
            if self.off or type(arg) is not str or not WORD.fullmatch(arg):
                return salts(arg)
            if arg in known:
                return arg
            made = salts(arg)
            if type(made) is str and made == arg:
                self.remember(known, arg, True)
            return made

        return yamlify_arg
