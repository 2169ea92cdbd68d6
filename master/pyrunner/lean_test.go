package pyrunner

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// options is a runner that carries out the same random operations on options as Salt's library makes
// them and as this program does, and compares what both return, and all keys at the end.
const options = `
import copy
import importlib.util
import random
try:
    import salt.utils.optsdict as ours
except ImportError:
    ours = None

def compare(rounds, seed):
    if ours is None:
        return "plain"
    spec = importlib.util.spec_from_file_location("plain_optsdict", ours.__file__)
    plain = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plain)
    assert plain.OptsDict.__getitem__ is not ours.OptsDict.__getitem__
    assert ours.OptsDict.__getitem__.__module__ != ours.__name__
    draw = random.Random(seed)
    wrong = []
    for number in range(rounds):
        base = {key: value(draw, 2) for key in "abcdefgh" if draw.random() < 0.7}
        families = [[kind.OptsDict.from_dict(copy.deepcopy(base))] for kind in (plain, ours)]
        for _ in range(60):
            operation = make(draw, len(families[0]))
            got = [perform(operation, family) for family in families]
            if got[0] != got[1]:
                wrong.append([number, repr(operation), *got])
        ends = [repr([sorted(opts.items()) for opts in family]) for family in families]
        if ends[0] != ends[1]:
            wrong.append([number, *ends])
    return wrong

def value(draw, deep):
    kind = draw.choice(["none", "text", "number", "yes", "tuple"] + ["list", "dict"] * (2 if deep else 0))
    if kind == "list":
        return [value(draw, deep - 1) for _ in range(draw.randrange(3))]
    if kind == "dict":
        return {key: value(draw, deep - 1) for key in "xyz" if draw.random() < 0.5}
    return {"none": None, "text": draw.choice("pqr"), "number": draw.random(), "yes": True, "tuple": (1, [2])}[kind]

def make(draw, members):
    what = draw.choice(["child", "get", "get", "item", "item", "set", "delete", "in", "nested", "append", "update", "true", "len"])
    return (what, draw.randrange(members), draw.choice("abcdefghi"), value(draw, 1))

def perform(operation, family):
    what, member, key, new = operation
    opts, new = family[member], copy.deepcopy(new)
    try:
        if what == "child":
            family.append(type(opts).from_parent(opts))
            return ""
        if what == "get":
            return seen(opts.get(key, "no"))
        if what == "item":
            return seen(opts[key])
        if what == "set":
            opts[key] = new
        if what == "delete":
            del opts[key]
        if what == "in":
            return repr(key in opts)
        if what == "nested":
            opts[key]["x"] = new
        if what == "append":
            opts[key].append(new)
        if what == "update":
            opts.update({key: new})
        if what == "true":
            return repr(bool(opts))
        if what == "len":
            return repr(len(opts))
        return ""
    except Exception as exc:
        return type(exc).__name__ + str(exc)

def seen(found):
    return type(found).__name__ + repr(found)
`

// TestOptionsAreSalts: options with the shorter way of finding a value behave as Salt's own.
func TestOptionsAreSalts(t *testing.T) {
	c, dir := setUp(t, false)
	put(t, filepath.Join(dir, "own/options.py"), options)
	seed := rand.Int64()
	wrong, err := c.Call(t.Context(), "options.compare", []any{int64(100), seed}, nil)
	if wrong == "plain" {
		t.Skip("SKIPPED: options of Salt are plain dictionaries before 3008")
	}
	if err != nil || fmt.Sprint(wrong) != "[]" {
		t.Errorf("seed %d: %v %v", seed, wrong, err)
	}
}

// TestHangingProgramDelaysTheStart: a program that does not say which Linux this is holds up the first
// call for some seconds, not for ever.
func TestHangingProgramDelaysTheStart(t *testing.T) {
	c, dir := setUp(t, false)
	put(t, filepath.Join(dir, "bin/lsb_release"), "#!/bin/sh\ntouch "+dir+"/asked\nexec sleep 600\n")
	if err := os.Chmod(filepath.Join(dir, "bin/lsb_release"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	own := NewHost(HostConfig{Pythons: []string{os.Getenv("SALTERN_PYTHON")}})
	t.Cleanup(own.Close)
	c.cfg.Host = own

	began := time.Now()
	if _, err := c.Call(t.Context(), "odd.who", nil, nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "asked")); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 50*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestCallsSeeNothingOfEachOther: what a call changes in what Salt's library gives it is not there
// for the next call.
func TestCallsSeeNothingOfEachOther(t *testing.T) {
	c, dir := setUp(t, false)
	put(t, filepath.Join(dir, "own/spill.py"), `
import os
import sys
import salt.client.mixins
import salt.config
import salt.minion
import salt.runner
import salt.utils.network

left = []

def all():
    keeper = salt.runner.RunnerClient(__opts__).mminion
    state = {
        "own": (left, "left"), "context": (__context__, "left"), "options": (__opts__, "left"),
        "defaults": (salt.config.DEFAULT_MASTER_OPTS._ImmutableDict__obj, "left"), "modules": (sys.modules, "left"),
        "environment": (os.environ, "LEFT"), "pillar": (keeper.opts["pillar"], "left"), "grains": (keeper.opts["grains"], "left"),
        "returners": (keeper.returners.pack["__context__"], "left"), "code": (vars(salt.client.mixins), "left"),
        "network": (vars(salt.utils.network), "left"),
    }
    seen = []
    for name, (place, key) in sorted(state.items()):
        if key in place:
            seen.append(name)
        if isinstance(place, list):
            place.append(key)
        else:
            place[key] = "left"
    return [len(state), seen]
`)

	for range 3 {
		if v, err := c.Call(t.Context(), "spill.all", nil, nil); err != nil || fmt.Sprint(v) != "[11 []]" {
			t.Errorf("%v %v", v, err)
		}
	}
}

// TestKeeperIsNeverOld: the steps of a call share what keeps their results, but not with a returner
// that was added or removed between two of them, nor over other options.
func TestKeeperIsNeverOld(t *testing.T) {
	c, dir := setUp(t, false)
	put(t, filepath.Join(dir, "ext/returners/unused.py"), "def returner(ret):\n    pass\n")
	put(t, filepath.Join(dir, "own/keepers.py"), `
import copy
import os
import time
import salt.client.mixins
import salt.runner

def clients():
    keepers = type(salt.client.mixins.SyncClientMixin.mminion.fget.__self__)
    keepers.shared.__globals__["SETTLED"] = -1e9  # folders that were just changed count, too
    folder = os.path.join(__opts__["extension_modules"], "returners")
    seen, names = [], {}
    made = []  # to the end, or another one gets the same id
    def keeper(**options):
        opts = copy.deepcopy(dict(__opts__))
        opts.update(options)
        mminion = salt.runner.RunnerClient(opts).mminion
        made.append(mminion)
        of = mminion.returners[opts["master_job_cache"] + ".returner"].__globals__["__file__"]
        return [names.setdefault(id(mminion), len(names)), of.startswith(folder), mminion.opts["cachedir"] == opts["cachedir"]]
    for _ in range(2):
        seen.append(keeper())
    seen.append(keeper(cachedir=__opts__["cachedir"] + "/other"))
    path = os.path.join(folder, "local_cache.py")
    time.sleep(0.02)  # the resolution of times of files
    with open(path, "w") as file:
        file.write("def returner(ret):\n    pass\n")
    for _ in range(2):
        seen.append(keeper())
    os.remove(path)
    seen.append(keeper())
    return seen
`)

	v, err := c.Call(t.Context(), "keepers.clients", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := "[[0 false true] [0 false true] [1 false true] [2 true true] [3 true true] [4 false true]]"
	if got := fmt.Sprint(v); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
