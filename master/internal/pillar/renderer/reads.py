"""Records what a pillar template reads (saltern_pillar_memo), so that its result
may be given to minions for which everything that was read is the same.

A recorded template gets handles in place of grains, pillar and functions.
A handle notes what is asked of it and answers with a copy of what the template
would have seen. All that has no handle and is not on the lists below ends the
recording with Unshareable; the template is then rendered as if nothing had
been recorded, and its result is for one minion only. Until then nothing has
had an effect: what the lists name computes, and what is handed out are copies.
"""

import copy
import hashlib
import io
import os
import re
from collections.abc import Mapping

# Globals of templates that depend on nothing but their arguments and the SLS.
# What an include gives as defaults is free too: it is part of the request.
FREE = set(
    "range dict namespace cycler joiner odict saltenv sls slspath slsdotpath"
    " slscolonpath sls_path tplpath tplfile tpldir tpldot".split()
)

# Names that Salt or a template takes for more than a value: parameters of compile_template, of
# renderers and of wrap_tmpl_func (salt/utils/templates.py), and what they put into templates. The
# defaults of an include are passed on among these, so one of them would replace Salt's own.
RESERVED = FREE | set(
    "context opts salt grains pillar proxy fileclient env renderers template default blacklist"
    " whitelist input_data tmplsrc template_file tmplpath argline from_str to_str mask_value".split()
)

# Filters and tests that compute. Missing are those that look at the clock, chance,
# files, the network or the identity of objects, and attr, which before Jinja 3.1.6 looks into
# handles without asking them.
FILTERS = set(
    "abs batch capitalize center count d default dictsort e escape"
    " filesizeformat first float forceescape format groupby indent int join last"
    " length list lower items map min max pprint reject rejectattr replace reverse"
    " round safe select selectattr slice sort string striptags sum title trim"
    " truncate unique upper urlencode wordcount wordwrap xmlattr tojson"
    " yaml json xml python load_yaml load_json load_text dict_to_sls_yaml_params"
    " combinations combinations_with_replacement compress permutations product zip"
    " zip_longest to_bytes str_to_num to_num is_hex contains_whitespace human_to_bytes"
    " to_snake_case to_camelcase base64_encode base64_decode md5 sha1 sha256 sha512"
    " hmac hmac_compute compare_dicts compare_lists exactly_n_true exactly_one_true"
    " traverse substring_in_list is_list is_iter sorted_ignorecase json_query flatten"
    " to_entries from_entries set_dict_key_value update_dict_key_value"
    " append_dict_key_value extend_dict_key_value yaml_dquote yaml_squote yaml_encode"
    " skip sequence to_bool quote regex_escape regex_search regex_match regex_replace"
    " avg union intersect difference symmetric_difference is_ip is_ipv4 is_ipv6 path_join".split()
)
TESTS = set(
    "odd even divisibleby defined undefined none boolean false true integer float"
    " lower upper string mapping number sequence iterable escaped in == eq equalto"
    " != ne > gt greaterthan ge >= < lt lessthan <= le match list".split()
)
HOMES = ("jinja2.", "salt.utils.", "salt.serializers.", "markupsafe", "builtins", "_operator", "itertools")

# Functions that read grains or the pillar by a key, and those that only compute:
# the source, the key's parameter, and those that may be given, in order.
FUNCTIONS = {
    "grains.get": ("grains", "key", ("key", "default", "delimiter")),
    "grains.has_value": ("grains", "key", ("key",)),
    "grains.filter_by": ("grains", "grain", ("lookup_dict", "grain", "merge", "default", "base")),
    "pillar.get": (
        "pillar", "key", ("key", "default", "merge", "merge_nested_lists", "delimiter")
    ),
    "slsutil.merge": (None, None, ("obj_a", "obj_b", "strategy")),
    "slsutil.update": (None, None, ("dest", "upd", "recursive_update", "merge_lists")),
    "slsutil.boolstr": (None, None, ("value", "true", "false")),
}

# Keys that Salt looks up as they are only: others it tries as YAML, too, which
# may find a number or a truth value (salt/utils/data.py traverse_dict_and_list).
PLAIN_KEY = re.compile(
    r"(?!(?:y|n|yes|no|on|off|true|false|null|none|nan|inf)\Z)[a-z_][\w.-]*\Z", re.I | re.A
)
MOST = 1000  # reads and files of one template


class Unshareable(BaseException):
    """Why a result is for one minion only. Nothing between a template and the
    recorder is to take it for an error of the template."""


class Recorder:
    """What one rendering reads."""

    def __init__(self, functions, dump):
        self.functions, self.dump = functions, dump
        self.opts = None  # those of Salt's jinja renderer
        self.reads, self.files = {}, {}
        self.texts, self.names = [], set()
        self.loaded = self.checked = 0
        self.handed = []

    def read(self, source, real, path, traversed):
        at = real
        for part in path:
            if not isinstance(at, dict):
                break
            if part not in at:
                if traversed and not PLAIN_KEY.match(part):
                    raise Unshareable(f"asks for the key {part[:64]} that Salt also reads as YAML")
                break
            at = at.get(part)
        self.reads[(source, path)] = None
        if len(self.reads) > MOST:
            raise Unshareable("reads too many values")

    def hand(self, value):
        """A copy of a value, of which is known later whether it was changed."""
        if value is None or isinstance(value, (str, bytes, int, float)):
            return value
        twin = copy.deepcopy(value)
        self.handed.append((twin, value))
        return twin

    def file(self, paths, found, text):
        """A file that was imported, which is not in the folders before its own."""
        for path in paths:
            if path == found:
                self.files[path] = hashlib.sha256(text.encode()).digest()
                break
            self.files[path] = None
        else:
            raise Unshareable("imports a file in a way that is not known")
        self.loaded += 1
        if len(self.files) > MOST:
            raise Unshareable("imports too many files")

    def trace(self, raw):
        """What was read, of a template with these bytes."""
        text = raw.decode("utf-8")
        if self.texts not in ([text], [io.StringIO(text, newline=None).read()]):
            raise Unshareable("is not one template, or the file has changed")
        if self.checked != self.loaded + 1:
            raise Unshareable("was not looked through")
        for twin, value in self.handed:
            if self.dump(twin) != self.dump(value):
                raise Unshareable("changes grains or the pillar")
        return self.so_far(raw)

    def so_far(self, raw):
        """What was read until now, whether or not it is all."""
        return {
            "sum": hashlib.sha256(raw).digest(),
            "reads": [[source, *path] for source, path in self.reads],
            "files": list(self.files.items()),
        }


class Handle:
    """Stands for something in a template and refuses what it does not know."""

    def __init__(self, recorder, name):
        self.recorder, self.name = recorder, name

    def refuse(self, *_, **__):
        raise Unshareable(f"uses {self.name} as a whole")

    __str__ = __repr__ = __html__ = __format__ = __iter__ = __len__ = __bool__ = refuse
    __call__ = __contains__ = __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = refuse
    __hash__ = __getitem__ = __add__ = __mod__ = __or__ = __ror__ = __deepcopy__ = refuse


class Values(Handle):
    """Grains or the pillar."""

    def __init__(self, recorder, name, real):
        super().__init__(recorder, name)
        self.real, self.twins = real, {}

    def known(self, key):
        if not isinstance(key, str):
            raise Unshareable(f"asks {self.name} for a key that is no text")
        self.recorder.read(self.name, self.real, (str(key),), False)
        return key in self.real

    def twin(self, key):
        # Not [key]: in Salt 3008 that copies, after which less sees what is changed
        # (salt/utils/optsdict.py DictProxy).
        if key not in self.twins:
            self.twins[key] = self.recorder.hand(self.real.get(key))
        return self.twins[key]

    def get(self, key, default=None):
        return self.twin(key) if self.known(key) else default

    def __contains__(self, key):
        return self.known(key)

    def item(self, env, key):
        if self.known(key):
            return self.twin(key)
        if hasattr(type(self.real), key):
            self.refuse()
        return env.undefined(obj=self.real, name=key)

    def attribute(self, env, name):
        if name == "get":
            return self.get
        if hasattr(type(self.real), name):
            self.refuse()
        return self.item(env, name)


class Functions(Handle):
    """Execution modules: salt, and with a name one module of it."""

    def item(self, _, name):
        if self.name != "salt" or name not in FUNCTIONS:
            raise Unshareable(f"calls {str(name)[:64]}")
        real = self.recorder.functions[name]
        if not owned(real, "salt.loaded.int."):
            raise Unshareable(f"calls {name} of another module than Salt's")
        source, key, names = FUNCTIONS[name]

        def function(*args, **kwargs):
            given = dict(zip(names, args), **kwargs)
            path = given.get(key, "os_family" if key == "grain" else None)
            if len(args) > len(names) or not set(given).issubset(names):
                raise Unshareable(f"calls {name} with arguments that are not known")
            if source is None:
                return real(*args, **kwargs)
            split = given.get("delimiter", ":")
            if not isinstance(path, str) or not isinstance(split, str) or not split:
                raise Unshareable(f"calls {name} with a key that is no text")
            values = self.recorder.values[source].real
            self.recorder.read(source, values, tuple(str(path).split(split)), True)
            found = real(*args, **kwargs)
            if found is given.get("default") or name == "grains.filter_by":
                return found  # the template's own
            return self.recorder.hand(found)

        return function

    def attribute(self, env, name):
        if self.name == "salt":
            return Functions(self.recorder, name)
        return Functions(self.recorder, "salt").item(env, f"{self.name}.{name}")


def refuse_reserved(given):
    """Refuses defaults of an include that are more than values to a template."""
    for name in given:
        if name in RESERVED or not isinstance(name, str) or name.startswith("_"):
            raise Unshareable(f"is given {str(name)[:64]} by an include")


def owned(function, *homes):
    """Reports whether a function is of one of these modules, and no shop's own."""
    return (getattr(function, "__module__", None) or "").startswith(homes)


class Allowed(dict):
    """Filters or tests, of which only some may be called."""

    def __init__(self, all_, kind, names):
        super().__init__(all_)
        self.kind, self.names = kind, names

    def __getitem__(self, name):
        function = super().__getitem__(name)
        if name in self.names and owned(function, *HOMES):
            return function

        def refuse(*_, **__):
            raise Unshareable(f"uses the {self.kind} {name}")

        return refuse

    def get(self, name, default=None):
        return self[name] if name in self else default


def environment():
    """The class of Jinja environments that record."""
    import jinja2
    from jinja2 import nodes
    from jinja2.sandbox import SandboxedEnvironment

    class Recording(SandboxedEnvironment):
        def __init__(self, recorder, loader=None, **kwargs):
            self.recorder = recorder
            super().__init__(loader=loader, **kwargs)
            self.filters = Allowed(self.filters, "filter", FILTERS)
            self.tests = Allowed(self.tests, "test", TESTS)
            if not hasattr(loader, "searchpath"):
                raise Unshareable("imports files in a way that is not known")
            loader.get_source = self.watched(loader.get_source, loader.searchpath)

        def watched(self, get_source, folders):
            def get(env, template):
                name = template
                if template.split("/", 1)[0] in (".", ".."):
                    base = env.globals.get("tpldir")
                    if not isinstance(base, str) or os.path.isabs(base):
                        raise Unshareable("imports a file in a way that is not known")
                    name = os.path.normpath("/".join((base, template)))
                try:
                    got = get_source(env, template)
                except jinja2.TemplateNotFound:
                    raise Unshareable("imports a file that is not there") from None
                self.recorder.file([os.path.join(f, name) for f in folders], got[1], got[0])
                return got

            return get

        def _generate(self, source, *args, **kwargs):
            self.look_through(source)
            return super()._generate(source, *args, **kwargs)

        def look_through(self, tree):
            """Refuses a template that takes what has a handle for anything else than
            to look something up in it, so that handles get nowhere, and one
            that names what is not free."""
            if next(tree.find_all((nodes.ContextReference, nodes.DerivedContextReference)), None):
                raise Unshareable("uses a tag that is not known")
            looked_up = {id(n.node) for n in tree.find_all((nodes.Getattr, nodes.Getitem))}
            looked_up |= {
                id(n.expr) for n in tree.find_all(nodes.Operand) if n.op in ("in", "notin")
            }
            for name in tree.find_all(nodes.Name):
                if name.ctx != "load":
                    continue
                if name.name in ("grains", "pillar", "salt"):
                    if id(name) not in looked_up:
                        raise Unshareable(f"uses {name.name} as a whole")
                elif name.name in self.recorder.names or name.name in self.globals:
                    known = self.globals.get(name.name)
                    own = not callable(known) or owned(known, *HOMES, "collections")
                    if not (name.name in FREE and own) and name.name not in self.recorder.given:
                        raise Unshareable(f"uses {name.name}")
            self.recorder.checked += 1

        def getitem(self, obj, argument):
            if isinstance(obj, (Values, Functions)):
                return obj.item(self, argument)
            return super().getitem(obj, argument)

        def getattr(self, obj, attribute):
            if isinstance(obj, (Values, Functions)):
                return obj.attribute(self, attribute)
            return super().getattr(obj, attribute)

    return Recording


def recorded(recording, recorder, compiled):
    """Calls compiled while templates are recorded, and returns what it does."""
    import jinja2.sandbox
    import salt.utils.templates as templates

    def jinja(text, context, tmplpath=None):
        recorder.texts.append(text)
        if bare(context["opts"]) is not recorder.opts:
            raise Unshareable("is given other options than the session's")
        context = dict(context)
        recorder.names = set(context)
        recorder.values = {}
        for name in ("grains", "pillar"):
            real = bare(context[name])
            recorder.values[name] = context[name] = Values(recorder, name, real)
        context["salt"] = Functions(recorder, "salt")
        return templates.render_jinja_tmpl(text, context, tmplpath)

    kept = templates.JINJA, jinja2.sandbox.SandboxedEnvironment
    templates.JINJA = templates.wrap_tmpl_func(jinja)
    jinja2.sandbox.SandboxedEnvironment = lambda **kwargs: recording(recorder, **kwargs)
    try:
        return compiled()
    finally:
        templates.JINJA, jinja2.sandbox.SandboxedEnvironment = kept


def seen(rend, functions):
    """What the next template sees of grains and the pillar, by itself and through
    functions. Loaders of the releases keep them, and copies of them, in several places."""
    import salt.utils.templates as templates

    caught = {}

    def jinja(*_, **kwargs):
        caught.update(kwargs)
        return {"result": True, "data": ""}

    kept, templates.JINJA = templates.JINJA, jinja
    try:
        rend["jinja"](io.StringIO(""), "base", "")
    finally:
        templates.JINJA = kept
    views = [caught["grains"], caught["pillar"]]
    # Not by getattr: loaders without this attribute load all their modules first.
    for loader in (functions, vars(functions).get("_dunder_salt")):
        if loader is not None:
            views += [loader.pack.get("__grains__"), loader.pack.get("__pillar__")]
    return plain([bare(view) for view in views])


def bare(real):
    """The value of what a loader wraps."""
    return real.value() if hasattr(real, "value") and not isinstance(real, dict) else real


def plain(value):
    """A value as lists of pairs, whatever class its dictionaries have."""
    if isinstance(value, Mapping):
        return [(key, plain(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
